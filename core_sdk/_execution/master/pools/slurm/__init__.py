"""Slurm as the engine of experiments: each attempt of a trial is a job, which the master submits.

A job claims its attempt itself when it starts, so that it trains without a master, too (`__main__`). The pool looks for
attempts that have begun and ended in the home, and asks Slurm for the states of all jobs at once.
"""

from __future__ import annotations

from core_sdk._execution.master.pools.slurm._pool import SlurmPool
