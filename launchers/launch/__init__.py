"""Launchers start the ranks of a training script: `python -m launch.NAME …`, one module per framework."""
