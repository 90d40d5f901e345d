"""The engine that starts the ranks of every framework on this node, with torchrun's options and variables."""
