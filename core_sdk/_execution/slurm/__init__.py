"""Slurm as an engine: a trial runs as a job, and each job that follows goes on with it from its newest checkpoint.

`submission` puts a trial into Slurm's queue. `__main__` is the process that a job runs on its first node: it starts the
ordinary agent there, asks the training to stop before the job's time is over, and submits the next job if the training
is not complete. So nothing has to run besides the jobs. A master writes the `order` that the job of its trial carries
out. `commands` speaks with Slurm by its commands, in plain text.

All nodes must see the home, in which the trial's records, its output and the batch script lie.
"""
