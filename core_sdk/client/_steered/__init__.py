"""Trials, experiments and checkpoints without their ways to one another: what is known of each, and its verbs."""
