"""The records of Core SDK: the contents of journals, manifests and the small JSON files, as typed values.

Every struct here is a file format: fields are added with a default, never renamed. Each kind of file starts with a
`format` number, so that a reader can refuse a newer format. Decoding accepts unknown fields.
"""

from core_sdk._ground.records._checkpoints import MANIFEST_NAME, FileEntry, Manifest, decode_manifest, encode_manifest
from core_sdk._ground.records._cluster import PLACED, ClusterInfo, Detour, Keep, RecordedKeep, Setback, TrialInfo
from core_sdk._ground.records._events import (
    AttemptBegun,
    AttemptOutcome,
    AttemptOver,
    Event,
    ExperimentBegun,
    ExperimentContinued,
    ExperimentEnded,
    ExperimentWanted,
    FinalState,
    KillSent,
    OperationsPosted,
    SettingsChanged,
    StopSent,
    TrialNumbered,
    TrialWanted,
    ValidationRead,
    Wish,
)
from core_sdk._ground.records._files import decode_file, decode_values, encode_file, encode_values
from core_sdk._ground.records._folders import (
    STOPPED_BY_SEARCHER,
    AdoptedRecord,
    CodeRecord,
    CommandRecord,
    EnvironmentRecord,
    ExitRecord,
    ExperimentRecord,
    ExperimentState,
    HomeRecord,
    JobRecord,
    MasterRecord,
    NumbersHereRecord,
    SearchRecord,
    SlurmRecord,
    StopRequest,
    StudyRecord,
    SubmissionRecord,
    TrialDescription,
    TrialRecord,
)
from core_sdk._ground.records._hparams import differing_values, merged_groups, recorded_config, with_given
from core_sdk._ground.records._journal import (
    FORMAT,
    Alert,
    AttemptStarted,
    CheckpointBegun,
    CheckpointCondemned,
    CheckpointDeleted,
    CheckpointMetadataSet,
    CheckpointPinned,
    CheckpointPruned,
    CheckpointStored,
    CheckpointUnpinned,
    CheckpointUsed,
    Dropped,
    EarlyExit,
    Ended,
    FlopsSet,
    MetadataSet,
    OfTrial,
    OperationCompleted,
    OperationsClosed,
    OperationWanted,
    Outcome,
    PhaseEnded,
    Profile,
    ProgressReported,
    Record,
    Report,
    Settled,
    StallFound,
    StatusSet,
    StopAcknowledged,
    TrialArchivedSet,
    TrialDescribed,
    TrialLabelsChanged,
    TroubleFound,
)
from core_sdk._ground.records._media import (
    EXTENSIONS,
    MEDIA_DIRECTORY,
    MEDIA_KINDS,
    MEDIA_TAG,
    Media,
    MediaFile,
    media_in,
)
from core_sdk._ground.records._metric_names import split_metric_name
from core_sdk._ground.records._models import ModelRecord, ModelVersionRecord
from core_sdk._ground.records._retention import (
    RETENTION_KEYS,
    STORAGE_KEYS,
    KeepEvery,
    RetentionPolicy,
    SearcherMetric,
    chosen_metric,
)
from core_sdk._ground.records._strict_json import field_names, fields_of, plain, strict_json
from core_sdk._ground.records._trial_names import generated_name
from core_sdk._ground.records._values import (
    MAX_DEPTH,
    MAX_INT,
    MAX_NAME_BYTES,
    MAX_SEED,
    WRITER_NAME,
    Metric,
    Source,
    Time,
    check_name,
    check_seed,
    check_steps,
    check_text,
    check_writer_name,
    format_number,
    from_json,
    in_order,
    metrics_from_json,
    nonfinite_to_text,
    number_from_json,
    number_of,
    number_to_json,
    scalar,
    to_json,
    to_json_or_text,
)
