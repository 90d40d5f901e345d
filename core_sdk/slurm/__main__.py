"""The process of a job on its first node: `python -P -m core_sdk.slurm --trial=ID --home=IDENTITY`."""

from __future__ import annotations

import sys

from core_sdk.slurm.job import TrialJob, begin_job, exit_status_of
from core_sdk.tracking.attempts.starting import resume


def main() -> int:
    """Runs the job of this process, and returns its exit status."""
    folder, job, caught = begin_job()
    num_slots = folder.read_record().num_slots
    return TrialJob(
        folder,
        job,
        caught,
        lambda slots: resume(folder, is_again=True, slots=slots),
        num_slots=num_slots,
        is_chained=True,
    ).run()


if __name__ == "__main__":
    sys.exit(exit_status_of(main))
