"""Runs scripts: agents, experiments and their master, groups of workers, jobs of Slurm, and the verbs for them."""
