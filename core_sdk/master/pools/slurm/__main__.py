"""The process of a job of an experiment: `python -P -m core_sdk.master.pools.slurm --trial=ID --home=IDENTITY`."""

from __future__ import annotations

import sys
import time
from dataclasses import replace

from core_sdk.errors import SlurmError, TrialNotFoundError
from core_sdk.master.pools.slurm._order import read_order
from core_sdk.slurm.job import TrialJob, begin_job, exit_status_of
from core_sdk.tracking.home import TrialFolder

_RECORDING_S = 30.0
_POLL_S = 0.2


def main() -> int:
    """Runs the job of this process, and returns its exit status."""
    folder, job, caught = begin_job()
    if (order := read_order(folder)) is None:
        raise TrialNotFoundError(folder.trial_id, folder.home_root)
    if not _is_wanted(folder, job.job_id):
        raise SlurmError(f"job {job.job_id} starts nothing", "the master has not recorded it, or has taken it back")
    # A trial whose record exists goes on.
    order = replace(order, is_first=order.is_first and not folder.exists())
    return TrialJob(folder, job, caught, order.claim, num_slots=order.num_slots, is_chained=False).run()


def _is_wanted(folder: TrialFolder, job_id: str) -> bool:
    """Returns whether the job is the trial's newest one. The master may still be about to record it."""
    deadline = time.monotonic() + _RECORDING_S
    while True:
        record = folder.read_slurm_job()
        if record is not None and record.job_id == job_id:
            return not record.is_over
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)


if __name__ == "__main__":
    sys.exit(exit_status_of(main))
