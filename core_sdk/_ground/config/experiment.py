"""The parts of an experiment's configuration, by the names that they have in the file."""

from __future__ import annotations

import math
import re
import shlex
import time
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from core_sdk._ground.config.entrypoint import Entrypoint, problem_of
from core_sdk._ground.config.hyperparameters import HyperparameterSpace, num_points
from core_sdk._ground.config.lengths import Period
from core_sdk._ground.config.searchers import GridSearcher, Searcher
from core_sdk._ground.guards import Guard
from core_sdk._ground.records import MAX_SEED, RetentionPolicy
from core_sdk._ground.sections import Section, about

_NO_CONTAINER = "trials run as plain processes, without a container"
_NO_EFFECT = "it had no effect any more"
_HOROVOD_OPTION = "give the option of horovodrun to `launch.horovod`"
_BATCH_JOB = "submit a batch job that runs the experiment"

Variable = Annotated[str, about("NAME=VALUE", pattern="^[^=]+=", examples=["NAME=VALUE"])]
StorageSpec = str | dict[str, Any]

FIT_ARGUMENTS = {
    "min_validation_period": "validation_period",
    "min_checkpoint_period": "checkpoint_period",
    "scheduling_unit": "reporting_period",
}
"""Keys that count only for a Trial class without a script. A script gives `Trainer.fit()` these arguments instead."""


class Reproducibility(Section, frozen=True):
    """The seed from which the random numbers of an experiment derive."""

    experiment_seed: Annotated[
        int, about("the seed of the searcher and the trials; else the time", ge=0, le=MAX_SEED)
    ] = msgspec.field(default_factory=lambda: int(time.time()) % MAX_SEED)


class SlurmOptions(Section, frozen=True):
    """The resources that jobs of an experiment request from Slurm, besides their slots."""

    partition: Annotated[str, about("the partition; else the default one")] = ""
    account: Annotated[str, about("the account that is charged")] = ""
    qos: Annotated[str, about("the quality of service")] = ""
    time: Annotated[str | int, about("the time of one job, as sbatch takes it; a trial may take several jobs")] = ""
    gres: Annotated[str, about("what each node has to have, such as `gpu:a100:8`; else it follows from the slots")] = ""
    constraint: Annotated[str, about("the features of the nodes")] = ""
    nodes: Annotated[int, about("the number of nodes of each trial, over which its slots are divided", ge=1)] = 1
    sbatch_args: Annotated[tuple[str, ...], about("further options of sbatch, each a line `#SBATCH …`")] = ()

    @property
    def options(self) -> tuple[str, ...]:
        """The options of sbatch, each as it stands in a line `#SBATCH …`."""
        names = ("partition", "account", "qos", "time", "gres", "constraint")
        given = {name: getattr(self, name) for name in names}
        return (*(f"--{name}={shlex.quote(str(value))}" for name, value in given.items() if value), *self.sbatch_args)


class RayOptions(Section, frozen=True):
    """The resources that trials request from a Ray cluster, besides their slots."""

    nodes: (
        Annotated[
            int, about("the number of nodes of each trial; else the fewest over which its slots divide evenly", ge=1)
        ]
        | None
    ) = None
    accelerator_type: Annotated[
        str, about("the accelerator that its nodes must have, by Ray's name, such as `A100`")
    ] = ""
    labels: Annotated[
        dict[str, str], about("the labels that its nodes must have: `VALUE`, `!VALUE`, `in(A,B)` or `!in(A,B)` by name")
    ] = {}
    resources: Annotated[dict[str, float], about("what it takes of other resources on each node, by Ray's names")] = {}
    runtime_env: Annotated[
        dict[str, Any], about("Ray's runtime environment: `pip`, `working_dir`, `env_vars` and its other fields")
    ] = {}
    autoscaling: Annotated[
        bool, about("the cluster adds nodes on demand: it is asked for what trials wait for, and no trial is refused")
    ] = False

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        directory = self.runtime_env.get("working_dir")
        if directory is not None and "://" not in str(directory):
            yield (
                "runtime_env",
                "has a working_dir that is no URI of a zip file, such as s3://…: to bring a directory along, submit "
                "the experiment with it",
            )


class Resources(Section, frozen=True, kw_only=True):
    """The resources that the trials of an experiment run on."""

    ignored = {
        "weight": "there is no fair-share scheduler",
        "resource_pool": "`engine` and `address` say where an experiment runs",
        **dict.fromkeys(("shm_size", "devices"), _NO_CONTAINER),
        **dict.fromkeys(("agent_label", "native_parallel"), _NO_EFFECT),
    }
    refused = {"slots": "write `slots_per_trial`"}

    slots_per_trial: Annotated[int, about("GPUs, or places on the CPU, of each trial; 0 is no GPU", ge=0)] = 1
    max_slots: Annotated[int, about("the slots of all trials that run at the same time", ge=0)] | None = None
    priority: Annotated[int, about("experiments of a smaller number start earlier", ge=1, le=99)] = 42
    engine: Annotated[
        Literal["local", "ray", "slurm"],
        about(
            "`local` is the master's machine, [`ray`](ray.md#experiments) a Ray cluster, "
            "[`slurm`](schedulers.md#experiments) jobs"
        ),
    ] = "local"
    address: Annotated[str, about("the Ray cluster's HOST:PORT; else the one that has a node on this machine")] = ""
    slurm: Annotated[SlurmOptions | None, about("what jobs ask Slurm for, with `engine: slurm`")] = None
    ray: Annotated[RayOptions | None, about("what trials ask the Ray cluster for, with `engine: ray`")] = None
    is_single_node: Annotated[bool, about("never spread a trial over machines")] = False

    @property
    def cluster(self) -> str:
        """The cluster whose slots these are: `slurm`, or the address of one of Ray; empty for the master's machine."""
        return {"local": "", "slurm": "slurm", "ray": self.address or "auto"}[self.engine]

    @property
    def jobs(self) -> SlurmOptions:
        """The resources that jobs request from Slurm."""
        return self.slurm or SlurmOptions()

    @property
    def on_ray(self) -> RayOptions:
        """The resources that trials request from a Ray cluster."""
        return self.ray or RayOptions()

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        if self.address and self.engine != "ray":
            yield "address", "names a Ray cluster: write `engine: ray`, too"
        if self.slurm is not None and self.engine != "slurm":
            yield "slurm", "is about jobs of Slurm: write `engine: slurm`, too"
        if self.ray is not None and self.engine != "ray":
            yield "ray", "is about Ray clusters: write `engine: ray`, too"
        for key, num_nodes in (("slurm.nodes", self.jobs.nodes), ("ray.nodes", self.on_ray.nodes or 1)):
            if self.slots_per_trial % num_nodes:
                yield "slots_per_trial", f"cannot be divided over {num_nodes} nodes ({key}): give a multiple"
            if self.is_single_node and num_nodes > 1:
                yield "is_single_node", f"contradicts {key}, which is {num_nodes}"


class EnvironmentVariables(Section, frozen=True):
    """Environment variables, `NAME=VALUE`, by the kind of device. A list in place of the map is for all kinds."""

    cpu: Annotated[tuple[Variable, ...], about("variables of trials without GPU")] = ()
    cuda: Annotated[tuple[Variable, ...], about("variables of trials on GPUs of NVIDIA")] = ()
    rocm: Annotated[tuple[Variable, ...], about("variables of trials on GPUs of AMD")] = ()


class TrialEnvironment(Section, frozen=True):
    """The environment of a trial's processes."""

    ignored = {
        "proxy_ports": "the ports of a trial are open on its machine",
        **dict.fromkeys(("image", "ports", "force_pull_image", "registry_auth"), _NO_CONTAINER),
        **dict.fromkeys(("add_capabilities", "drop_capabilities", "pod_spec"), _NO_CONTAINER),
    }

    environment_variables: EnvironmentVariables = EnvironmentVariables()


class LogPolicy(Section, frozen=True):
    """The meaning of a line in the output of a trial. A pattern of null switches a policy off."""

    name: Annotated[str, about("what the trial is marked with; each policy has its own", min_length=1)]
    pattern: Annotated[str | None, about("a regular expression, which is searched in each line")] = None
    action: Annotated[
        Literal["cancel_retries", "exclude_node"] | None, about("fail without a restart, or restart on another machine")
    ] = None

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            yield "pattern", f"is not a regular expression of Python: {error}"


LogPolicies = tuple[LogPolicy, ...]
DEFAULT_LOG_POLICIES = (
    LogPolicy("CUDA OOM", r".*CUDA out of memory.*"),
    LogPolicy("ECC Error", r".*uncorrectable ECC error encountered.*"),
)


class Profiling(Section, frozen=True):
    """The sampling of the machine's figures."""

    ignored = dict.fromkeys(("begin_on_batch", "end_after_batch", "sync_timings"), _NO_EFFECT)

    enabled: Annotated[bool, about("record the use of GPUs, memory, disks and network by each trial")] = False


class Optimizations(Section, frozen=True):
    """The options of gradient steps in the training of a Trial class without a script."""

    ignored = {
        "average_training_metrics": "training metrics are always averaged over all ranks",
        "mixed_precision": "call `context.experimental.use_amp()` in the trial",
        "grad_updates_size_file": _NO_EFFECT,
        **dict.fromkeys(
            ("tensor_fusion_threshold", "tensor_fusion_cycle_time", "auto_tune_tensor_fusion"), _HOROVOD_OPTION
        ),
    }

    aggregation_frequency: Annotated[int, about("the number of batches whose gradients make one step", ge=1)] = 1
    average_aggregated_gradients: Annotated[bool, about("their mean makes the step, and not their sum")] = True
    gradient_compression: Annotated[bool, about("Horovod exchanges gradients with 16 bits")] = False


class Integrations(Section, frozen=True):
    """Connections to other systems."""

    ignored = {"webhooks": "there are no webhooks"}
    refused = {"pachyderm": "there is no connection to Pachyderm"}


class ExperimentConfig(Section, frozen=True, kw_only=True):
    """The complete configuration of an experiment."""

    ignored = {
        "records_per_epoch": "the trainer counts the records itself",
        "bind_mounts": _NO_CONTAINER,
        "data_layer": _NO_EFFECT,
        "tensorboard_storage": "event files lie in the home",
        "retention_policy": "output is kept until the trial is deleted",
    }
    refused = {
        "internal": "it marks experiments of an old kind",
        "security": "there is no Kerberos",
        "slurm": "write `resources: {engine: slurm, slurm: {…}}`",
        "pbs": _BATCH_JOB,
    }

    name: Annotated[str, about("what lists call the experiment")] = ""
    description: Annotated[str, about("free text")] = ""
    labels: Annotated[tuple[str, ...], about("words to find the experiment by")] = ()
    data: Annotated[dict[str, Any], about("anything that the script wants to know")] = {}
    workspace: Annotated[str, about("the workspace of the project")] = ""
    project: Annotated[str, about("the project that the experiment belongs to")] = ""
    entrypoint: Annotated[Entrypoint, about("the command of each trial, or the Trial class that it trains")]
    hyperparameters: Annotated[HyperparameterSpace, about("values and ranges, by name")] = HyperparameterSpace()
    searcher: Annotated[Searcher, about("how hyperparameters are chosen; its `name` is one of those below")]
    reproducibility: Reproducibility = msgspec.field(default_factory=Reproducibility)
    max_restarts: Annotated[int, about("how often a trial that fails is started again", ge=0)] = 5
    guards: Annotated[
        tuple[Guard, ...], about("[rules about metrics](guards.md), by which trials stop or go back")
    ] = ()
    on_stall: Annotated[
        Literal["tell", "restart"], about("[a trial that stands still](stalls.md) is told of, or started again")
    ] = "tell"
    checkpoint_storage: Annotated[
        StorageSpec | None, about("[where](storage.md) checkpoints lie, and [how many](collection.md) are kept")
    ] = None
    checkpoint_policy: Annotated[
        Literal["best", "all", "none"], about("which validations the trainer saves a checkpoint after")
    ] = "best"
    min_validation_period: Annotated[Period | None, about("how often a Trial class without a script is validated")] = (
        None
    )
    min_checkpoint_period: Annotated[Period | None, about("how often a Trial class without a script is saved")] = None
    scheduling_unit: (
        Annotated[int, about("a Trial class without a script reports every so many batches", ge=1)] | None
    ) = None
    perform_initial_validation: Annotated[bool, about("the trainer validates before its first step")] = False
    preemption_timeout: Annotated[int, about("seconds from the wish to stop a trial until it is killed", ge=0)] = 3600
    optimizations: Optimizations = Optimizations()
    profiling: Profiling = Profiling()
    log_policies: Annotated[LogPolicies, about("these are added to the two that are built in")] = DEFAULT_LOG_POLICIES
    resources: Resources = Resources()
    environment: TrialEnvironment = TrialEnvironment()
    integrations: Annotated[Integrations, about("there are none yet")] = Integrations()
    warm: Annotated[
        bool, about("trials on this machine begin with their libraries [imported](experiments.md#warm-starts)")
    ] = True
    debug: Annotated[bool, about("log more")] = False

    @property
    def retention(self) -> RetentionPolicy:
        """The policy that says which checkpoints are kept."""
        storage = self.checkpoint_storage
        return RetentionPolicy.checked(storage if isinstance(storage, dict) else {})

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        if problem := problem_of(self.entrypoint):
            yield "entrypoint", problem
        if bool(self.workspace) != bool(self.project):
            missing = "project" if self.workspace else "workspace"
            yield missing, "is missing: give both workspace and project, or neither"
        if isinstance(self.searcher, GridSearcher):
            yield from _grid_problems(self.hyperparameters, self.searcher.max_points)


def _grid_problems(space: HyperparameterSpace, max_points: int) -> Iterator[tuple[str, str]]:
    points = {".".join(("hyperparameters", *path)): num_points(leaf) for path, leaf in space.leaves()}
    for path, number in points.items():
        if number is None:
            yield f"{path}.count", "is missing: a grid needs the number of values of each range"
    size = math.prod(number or 1 for number in points.values())
    if size > max_points:
        advice = "give smaller counts, or a larger searcher.max_points"
        yield "hyperparameters", f"make a grid of {size:,} points, more than {max_points:,}: {advice}"
