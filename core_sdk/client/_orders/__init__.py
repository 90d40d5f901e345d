"""The orders in which the client lists trials, checkpoints and what else it finds."""
