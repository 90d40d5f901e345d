"""The process of a job on its first node: `python -P -m core_sdk._execution.slurm --trial=ID --home=IDENTITY`."""

from __future__ import annotations

import sys

from core_sdk._execution.agent.starting import Agent


def main() -> int:
    """Runs the job of this process, and returns its exit status."""
    agent = Agent()
    from core_sdk._execution.slurm.job import run_job  # while the agent imports what it needs

    return run_job(agent)


if __name__ == "__main__":
    sys.exit(main())
