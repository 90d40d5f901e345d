"""The process's environment, read here and nowhere else.

| variable            | meaning                                                                     |
|---------------------|-----------------------------------------------------------------------------|
| `CORE_SDK_HOME`     | the directory of all records; default: the platform's user data directory    |
| `CORE_SDK_SLOTS`    | the directory by which all users of a machine share its slots; default: /tmp/core-sdk-slots |
| `CORE_SDK_SPOOLED_HOME` | to a worker that cannot see the home: where that is; `CORE_SDK_HOME` is its spool   |
| `CORE_SDK_RUN_INFO` | a JSON file (mode 0600) with what `get_cluster_info()` returns                |
| `CORE_SDK_LAUNCH_DIR` | from a launcher, or a worker group, to its ranks: its private directory     |
| `CORE_SDK_RENDEZVOUS` | from a launcher to the ranks of a single node: the directory where they meet |
| `CORE_SDK_CHANNEL_KEY` | the secret that ranks on several nodes share, if no store gives them one      |
| `CORE_SDK_PASS_VARIABLES` | more variables that a launcher passes to other hosts: `NAME,OTHER,PREFIX_*` |
| `CORE_SDK_MEETING_PORT` | to the launchers of several nodes: the port at which they meet, on the first one |
| `CORE_SDK_HEAD`     | to a launcher on one of several hosts: the mark of its reports, and its directory |
| `CORE_SDK_GUARDED_…` | marks, by which guardians know the processes that they are to end          |
| `CORE_SDK_LEFT_JOB` | from a process to itself: its pid, and the job whose training it has started       |
| `CORE_SDK_GRACE_S`  | how long a launcher and its ranks may take to end after SIGTERM; default: 3600 |
| `CORE_SDK_STORAGE_DEADLINE_S` | for how long a request to a bucket is tried again; default: 300 |
| `CORE_SDK_MAX_MEDIA_MB` | how many megabytes a value of `core_sdk.media` may have; default: 64 |
| `CORE_SDK_JOB_ID`   | names a training: each start with this name goes on with its trial; empty: no start does |
| `CORE_SDK_NUM_NODES` | how many pods of an indexed Job of Kubernetes train together               |
| `CORE_SDK_TEST_MODE` | not empty and not 0: `Trainer.fit()` trains and validates one batch, saves and ends |
| `CORE_SDK_QUIET`    | not empty and not 0: a script does not say which trial it is, and how it has ended |
| `CORE_SDK_DISTURBANCE` | from `core-sdk check-resume` to a training: how it is disturbed, and when, as JSON |
| `CORE_SDK_FINGERPRINTS` | from `core-sdk check-resume` to a training: the file for digests of its state     |
| `CORE_SDK_IMPORTS`  | from a master to the first trials of a search: the file for the names of what they import |
| `CORE_SDK_WRITER`   | the name under which a script reports about a trial, next to its own program |
| `CORE_SDK_TOKEN` | the token for that workspace, where nobody has logged in |
| `CORE_SDK_TRIAL`    | the id or the name of that trial; default: the trial whose script has started this one |
| `CORE_SDK_AUTHOR`   | the person or the agent that tries something; default: the name of the user      |
| `CORE_SDK_SERVER` | the workspace on a server to which records are sent: its address, or the name of a login |
| `CORE_SDK_SIGNS_DIR` | from an agent to the ranks of its node: where they give signs of life             |
| `CORE_SDK_FIGURES_S` | the seconds between two samples of the machine's figures, or off; default: 15 |
| `CORE_SDK_STALL_BOUNDS` | when a training is stalled: `FACTOR,LEAST_S,MOST_S`, or off; default: 10,60,3600 |
| `CORE_SDK_STOP_NOTICES` | clouds whose notice of a machine's end is a stop: `gce`, `ec2`, or both with a comma |

The addresses of those clouds' metadata servers are in `GCE_METADATA_HOST` and `AWS_EC2_METADATA_SERVICE_ENDPOINT`. If
Slurm has set `SLURM_JOB_ID`, SIGUSR1 is a stop as SIGTERM is.

Where a storage names no account of Azure, the account and its credentials are in `AZURE_STORAGE_CONNECTION_STRING`, or
in `AZURE_STORAGE_ACCOUNT` with `AZURE_STORAGE_KEY` or `AZURE_STORAGE_SAS_TOKEN`.

Slurm's `SLURM_…` and the `JOB_COMPLETION_INDEX` of Kubernetes' indexed Jobs tell a launcher its place among the nodes.

torchrun sets `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`, `GROUP_RANK` and `GROUP_WORLD_SIZE` for each rank;
DeepSpeed's launcher sets `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_SIZE`, `CROSS_RANK` and `CROSS_SIZE`. Both set the
address of torch's store in `MASTER_ADDR` and `MASTER_PORT`. Ranks that Lightning starts have only `WORLD_SIZE` and
`LOCAL_RANK`. Launchers of Horovod set `HOROVOD_RANK`. `DET_CHIEF_IP` is the address of rank 0's node, as Determined's
launchers set it.
"""

from __future__ import annotations

from core_sdk._ground.environment._children import (
    add_variables,
    agent_variables,
    child_variables,
    login_variables,
    passed_variables,
    rank_variables,
    recorded_variables,
    replace_variables,
    worker_variables,
)
from core_sdk._ground.environment._command import command_of_this_process, is_of_multiprocessing, is_script, main_script
from core_sdk._ground.environment._cpus import num_cpus
from core_sdk._ground.environment._jobs import job, leave_job, left_job
from core_sdk._ground.environment._launchers import (
    batch_job,
    first_variable,
    horovod_variables,
    job_id,
    job_placement,
    line_prefix_template,
    meeting_port,
    quiet_torch,
    taken_head,
    torch_extensions_directory,
    torchrun_variables,
    unshared_store,
    visible_gpus,
)
from core_sdk._ground.environment._marks import Mark
from core_sdk._ground.environment._ranks import (
    MeetingPlace,
    RankPlace,
    is_first_rank,
    is_horovod_launch,
    launch_directory,
    launched_chief_ip,
    name_local_rank_of_one,
    num_ranks_started,
    num_restarts,
    torchrun_launch,
)
from core_sdk._ground.environment._run_info import (
    BegunTrial,
    get_cluster_info,
    has_begun_attempt,
    run_info,
    run_info_used,
    trial_seed,
    trial_setback,
    use_run_info,
)
from core_sdk._ground.environment._settings import (
    AzureSettings,
    Environment,
    LaunchSettings,
    StopNoticeSettings,
    WorkspaceSettings,
    WriterSettings,
    author,
    disturbance,
    figures_interval_s,
    fingerprints_path,
    imports_path,
    is_quiet,
    is_test_mode,
    is_usr1_stop,
    known_grace_s,
    logins_path,
    max_media_bytes,
    signs_directory,
    slot_directory,
    stall_bounds,
    stop_signals,
    storage_deadline_s,
    workspace_variables,
    writer_variables,
)
from core_sdk._ground.environment._spool import is_home_spooled, path_at_home, path_here, spool_variables, use_home
from core_sdk._ground.environment._wandb import wandb_arguments
