"""Starts the trials of a search warm: forked from a process that has imported what they import.

A trial that trains for a second spends most of its time on `import torch`. So after the first trial of an experiment on
this machine has ended, the master starts a *warm process*: a spawner with that trial's interpreter and environment,
which imports the libraries that the trial has imported. It has one thread, and never runs code of the user's. Each
agent that is forked from it forks a *standby* before it does anything else, which becomes the command if the command is
a Python program that a fresh Python would begin in the same way. Otherwise the standby ends, and the agent starts the
command as ever.

- `programs`: which commands are such programs, and which environments are alike.
- `modules`: what a warm process imports.
- `standby`: the standby, as its agent sees it, and the beginning of an agent.
- `becoming`: how a standby becomes the program, as if a fresh Python had begun it.
- `agents`: the warm processes of a master.
"""
