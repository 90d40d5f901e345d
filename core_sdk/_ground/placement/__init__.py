"""Reads the nodes of a training, and its job, from a scheduler's variables.

Slurm's `srun` and Kubernetes' indexed Jobs start one process per node and tell each its place. The functions are pure;
`core_sdk._ground.environment` passes the variables in.
"""

from core_sdk._ground.placement._gpus import named_gpus
from core_sdk._ground.placement._jobs import JOB_ID_VARIABLE, Job, named_job, scheduled_job, slurm_job_name
from core_sdk._ground.placement._kubernetes import INDEX_VARIABLE, kubernetes_placement
from core_sdk._ground.placement._labels import matches_labels
from core_sdk._ground.placement._placement import MEETING_PORTS, Placement, port_of
from core_sdk._ground.placement._slurm import SlurmJob, slurm_job, slurm_placement
