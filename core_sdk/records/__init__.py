"""The records of Core SDK: what stands in journals, manifests and the small JSON files, as typed values.

Every struct here is a file format: fields are added with a default, never renamed. Each kind of file starts with a
`format` number, so that a reader knows what it does not understand. Decoding accepts unknown fields.
"""

from core_sdk.records._checkpoints import FileEntry, Manifest, decode_manifest, encode_manifest
from core_sdk.records._cluster import ClusterInfo, TrialInfo
from core_sdk.records._folders import (
    CommandRecord,
    ExitRecord,
    ExperimentRecord,
    HomeRecord,
    StopRequest,
    TrialRecord,
)
from core_sdk.records._journal import (
    FORMAT,
    Alert,
    AttemptStarted,
    CheckpointDeleted,
    CheckpointStored,
    CheckpointUsed,
    Dropped,
    EarlyExit,
    Ended,
    MetadataSet,
    OperationCompleted,
    Outcome,
    Profile,
    Progress,
    Record,
    Report,
    StatusSet,
    StopAcknowledged,
)
from core_sdk.records._values import (
    MAX_INT,
    MAX_NAME_BYTES,
    Metric,
    check_name,
    from_json,
    metrics_from_json,
    nonfinite_to_json,
    to_json,
)

__all__ = [
    "FORMAT",
    "MAX_INT",
    "MAX_NAME_BYTES",
    "Alert",
    "AttemptStarted",
    "CheckpointDeleted",
    "CheckpointStored",
    "CheckpointUsed",
    "ClusterInfo",
    "CommandRecord",
    "Dropped",
    "EarlyExit",
    "Ended",
    "ExitRecord",
    "ExperimentRecord",
    "FileEntry",
    "HomeRecord",
    "Manifest",
    "MetadataSet",
    "Metric",
    "OperationCompleted",
    "Outcome",
    "Profile",
    "Progress",
    "Record",
    "Report",
    "StatusSet",
    "StopAcknowledged",
    "StopRequest",
    "TrialInfo",
    "TrialRecord",
    "check_name",
    "decode_manifest",
    "encode_manifest",
    "from_json",
    "metrics_from_json",
    "nonfinite_to_json",
    "to_json",
]
