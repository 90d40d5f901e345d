"""torchrun's agent and options, which start the ranks of every framework."""
