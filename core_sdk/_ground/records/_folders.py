"""The small JSON files of a home, which describe the home, its experiments and its trials."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from core_sdk._ground.records._cluster import RecordedKeep
from core_sdk._ground.records._hparams import merged_groups
from core_sdk._ground.records._retention import RetentionPolicy, SearcherMetric
from core_sdk._ground.records._values import Int64, Time

ExperimentState = Literal[
    "ACTIVE",
    "QUEUED",
    "PAUSED",
    "STOPPING_COMPLETED",
    "STOPPING_CANCELED",
    "STOPPING_KILLED",
    "STOPPING_ERROR",
    "COMPLETED",
    "CANCELED",
    "ERROR",
]
"""The states of an experiment. One that was submitted leaves the last three only when it is continued, and is never
QUEUED: that is one whose trial waits in Slurm's queue without a master."""


class HomeRecord(msgspec.Struct, kw_only=True):
    """`<home>/home.json`."""

    format: int
    sdk_version: str


class AdoptedRecord(msgspec.Struct, kw_only=True, frozen=True):
    """`<home>/adopted.json`: the identities that somebody has declared to be one home, which was moved."""

    format: int = 1
    identities: list[str]


class MasterRecord(msgspec.Struct, kw_only=True, frozen=True):
    """`<home>/master.json`: the master that runs in the background or was killed. A master that ends removes it."""

    format: int = 1
    host: str
    options: list[str] = []
    """The options with which it was started."""
    home: str = ""
    """The identity of the home. A copy of the home has another one, and starts no master because of this record."""
    is_told: bool = False
    """Whether somebody was told that no master is started here."""


class SearchRecord(msgspec.Struct, kw_only=True, frozen=True):
    """The state of a submitted experiment as the master wrote it last. Lists show it without a master."""

    searcher: str
    state: ExperimentState
    reason: str = ""
    """The reason for the state, if there is one to tell."""
    progress: float | None = None
    num_trials: Int64 = 0
    """The number of trials that the searcher has asked for."""
    num_running: Int64 = 0
    ended: Time | None = None
    warnings: list[str] = []
    """Warnings about the reports of the trials."""
    num_events: Int64 = 0
    """The least number of events in its journal. If there are fewer, the journal has lost some."""
    home: str = ""
    """The identity of the home in which its master ran."""
    is_damaged: bool = False
    """The experiment stands still, since one of its files is damaged; `reason` names the file."""
    beginnings: list[str] = []
    """The checkpoints that trials which have not been made yet are to begin with."""

    @property
    def has_ended(self) -> bool:
        return self.state in ("COMPLETED", "CANCELED", "ERROR")


class StudyRecord(msgspec.Struct, kw_only=True, frozen=True):
    """What the tries of a study have in common: an experiment whose trials are tries of changed code."""

    directory: str
    """The directory for which the study was begun."""
    best_by: str
    """The metric that decides, as min.METRIC or max.METRIC."""
    command: list[str] = []
    """The command of a try that names none; empty: each names its own."""
    budget_s: float | None = None
    """How long each trial may run."""
    num_seeds: Int64 = 3
    num_slots: Int64 = 1
    """The slots that each trial takes."""


class CodeRecord(msgspec.Struct, kw_only=True, frozen=True):
    """The code that a try was given."""

    sha256: str
    """The name of `<home>/code/<sha256>.tar.gz`."""
    directory: str = ""
    """The directory below the code in which the command starts."""
    commit: str = ""
    """The commit that holds it in the git repository from which it was taken; empty if there is none."""
    change: str = ""
    """The SHA-256 of the lines that differ from the parent's; empty if there is no parent, or no difference."""
    linked: list[str] = []
    """What is no part of the code, and was linked into its copies: data, for example."""


class ExperimentRecord(msgspec.Struct, kw_only=True):
    """`<home>/experiments/<id>/experiment.json`."""

    experiment_id: Int64
    name: str
    created: Time
    labels: list[str] = []
    description: str = ""
    notes: str = ""
    retention: RetentionPolicy | None = None
    """The policy for keeping checkpoints, as given to the latest `init()`; None keeps all."""
    searcher_metric: SearcherMetric | None = None
    """The metric that says what is best, as given to the latest `init()` that names one."""
    is_submitted: bool = False
    """False for an experiment that is only a name for trials."""
    parent: Int64 | None = None
    """The experiment that this one was forked from, or that it continues."""
    first_id: Int64 = 0
    """The id that a submitted experiment had in the home where it was made; 0 if that is this home."""
    is_archived: bool = False
    search: SearchRecord | None = None
    """The search; None until a master has begun the experiment, and for one that was not submitted."""
    is_received: bool = False
    """Whether another home carries it out and has sent it to this one, which only shows it."""
    study: StudyRecord | None = None
    """What its tries have in common; None for an experiment that is no study."""

    @property
    def own_search(self) -> SearchRecord | None:
        """The search, unless it is another home that carries it out."""
        return None if self.is_received else self.search


class NumbersHereRecord(msgspec.Struct, kw_only=True, frozen=True):
    """`<home>/experiments/<id>/trials.json`: the numbers here of the trials of an experiment that was received."""

    format: int = 1
    numbers: dict[int, Int64] = {}
    """They are found by the numbers that the trials have in the home that sends them, and in its journal of events."""


class SubmissionRecord(msgspec.Struct, kw_only=True, frozen=True):
    """`<home>/experiments/<id>/submission.json`: what the trials of an experiment need besides its configuration."""

    format: int = 1
    code: str | None = None
    """The SHA-256 of `<home>/code/<code>.tar.gz`; None if the trials run in `cwd`."""
    cwd: str
    """The directory in which the experiment was submitted."""
    environment: dict[str, str] = {}
    """Variables that were set there."""
    warm_start: str | None = None
    """The checkpoint that the trials begin with."""
    overrides: list[str] = []
    """The changes that `--config` made to the configuration file."""
    key: str = ""
    """The key with which the program that submitted the experiment finds it again."""
    config_sha256: str = ""
    """The SHA-256 of `config.yaml`."""


class TrialDescription(msgspec.Struct, kw_only=True):
    """What a command line may say about a new trial, as its record has it."""

    name: str = ""
    """The name of the command line, or of `init()`; empty for the generated one."""
    notes: str = ""
    """The notes of the command line, or of `init()`, in Markdown."""
    labels: list[str] = []
    """The labels of the command line and of `init()`. The trial's experiment gets them too."""
    parent: Int64 | None = None
    """The trial of which this one is a variation."""
    hypothesis: str = ""
    """What the variation is expected to show."""
    best_by: str = ""
    """The metric by which it is best, as min.METRIC or max.METRIC; empty leaves that to its experiment."""
    time_limit_s: float | None = None
    """The longest duration of an attempt: then it is asked to stop, and killed if it does not."""
    on_stall: Literal["", "tell", "restart"] = ""
    """What is done when its ranks stand still; empty leaves that to its experiment."""
    guards: list[dict[str, Any]] = []
    """The guards of the command line, as maps."""
    try_id: Int64 | None = None
    """The first trial of the try to which it belongs; the trials of a try differ only in their seeds."""
    author: str = ""
    """Who has tried it: a person or an agent."""
    code: CodeRecord | None = None
    """The code of a try; None for a trial that runs where it was started."""
    num_seeds: Int64 = 0
    """The number of trials that its try was to have, together with this one; 0 if it belongs to no try."""


class TrialRecord(TrialDescription, kw_only=True):
    """`<home>/runs/<id>/trial.json`."""

    trial_id: Int64
    experiment_id: Int64
    created: Time
    seed: Int64
    hparams: dict[str, Any] = {}
    """The hyperparameters of the training: those given to `init()`, and the others of `given_hparams`.

    In a trial of a search, `given_hparams` come first, and only the others of those given to `init()` are added.
    """
    given_hparams: dict[str, Any] = {}
    """The hyperparameters of the search, of the command line, or of the trial that this one continues. Each attempt
    gets them."""
    data: dict[str, Any] = {}
    max_length: int | dict[str, int] | None = None
    num_slots: int | None = None
    """The value of `core-sdk run --slots`."""
    takes_slots: bool = False
    """Whether its attempts take that many slots of their machine from all other users."""
    continued_from: str | None = None
    """The checkpoint of another trial that this one started from."""
    keep: RecordedKeep | None = None
    """The parts of `continued_from` that are kept, as the command line says; None leaves it to the script."""
    is_defined: bool = False
    """Whether the script has called `init()`; False in a trial that `core-sdk run` has just made."""
    is_named: bool = False
    """The experiment was chosen when the trial was made: `init(name=…)` no longer changes it."""
    started_by: Int64 | None = None
    """The trial whose program has begun this one after its own; None if it has a start of its own."""
    is_seed_given: bool = False
    """The seed was chosen by a search or on the command line: `init(seed=…)` does not change it."""
    request_id: str = ""
    """The id by which the experiment's searcher knows the trial; empty if no searcher has asked for the trial."""
    first_id: Int64 = 0
    """The id that the trial had in the home where it was made; 0 if that is this home."""
    imported_from: str = ""
    """The run of another tool that the trial was imported from, by a name that no other run has."""
    fetched_from: str = ""
    """The trial of a workspace that this one goes on with, by its address."""

    @property
    def told_hparams(self) -> dict[str, Any]:
        """The value of `info.trial.hparams`, in each attempt."""
        return merged_groups(self.hparams, self.given_hparams)

    @property
    def is_variation(self) -> bool:
        """Whether its sources are kept, and its evidence compares it with a parent, if it has one."""
        return self.parent is not None or self.hypothesis != ""

    @property
    def slots_to_take(self) -> int | None:
        """The number of the machine's slots that its next attempt takes; None if it takes none."""
        return self.num_slots if self.takes_slots else None

    @property
    def chosen_hparams(self) -> dict[str, Any]:
        """The hyperparameters that a search or a command has chosen, without those that only the script has told."""
        return self.given_hparams if self.is_defined or self.given_hparams else self.hparams


class CommandRecord(msgspec.Struct, kw_only=True):
    """`<home>/runs/<id>/command.json`: how to start the script again."""

    argv: list[str]
    cwd: str
    environment: dict[str, str]


class JobRecord(msgspec.Struct, kw_only=True):
    """`<home>/jobs/<sha256>.json`: the trial that a scheduler's job has begun, by the SHA-256 of the job's name."""

    format: int = 1
    job: str
    trial_id: Int64 | None
    """The trial to continue; None if one start of the job has begun several trials."""
    script: str
    num_restarts: int | None
    """The number of times that the scheduler had restarted the job; None if it does not count."""
    launch: str = ""
    """The id of torchrun's launch, if torchrun has started the ranks without one of our launchers."""


STOPPED_BY_SEARCHER = "stopped by the searcher"
"""The source of a stop after which the trial is complete."""


class StopRequest(msgspec.Struct, kw_only=True):
    """`<home>/runs/<id>/<attempt>.stop`: a request to stop the attempt. An unreadable file is a request too."""

    time: Time
    source: str


class SlurmRecord(msgspec.Struct, kw_only=True, frozen=True):
    """`<home>/runs/<id>/slurm.json`: the newest job of a trial that runs in Slurm."""

    format: int = 1
    job_id: str
    """Slurm's id of the job; of one in an array, such as `7_12`."""
    is_over: bool = False
    """Whether the job has ended, or is being ended, and no other follows it."""
    problem: str = ""
    """The reason for which no other job would do better."""


class EnvironmentRecord(msgspec.Struct, kw_only=True, frozen=True):
    """`<home>/runs/<id>/<attempt>.environment`: an attempt's code and machine, written soon after its start."""

    git_commit: str = ""
    """Empty if the script is not in a git repository."""
    git_is_dirty: bool | None = None
    """Whether a file that git knows had changes that were not committed; None if unknown."""
    git_problem: str = ""
    """The reason why the commit of a repository, or whether there were changes, is unknown."""
    python: str
    packages: dict[str, str] = {}
    """Versions of the packages that matter to trainings, where they are installed."""
    host: str
    num_cpus: Int64
    memory_bytes: Int64
    gpus: tuple[str, ...] = ()
    """The names of the GPUs, if the script had begun to use them."""


class ExitRecord(msgspec.Struct, kw_only=True):
    """`<home>/runs/<id>/<attempt>.exit`: how the attempt ended, as seen by its agent or its launcher."""

    time: Time
    code: Int64
    """The exit status; -N for death by signal N."""
    reason: str = ""
    """The rank that failed first and its failure, as the launcher reports them."""
