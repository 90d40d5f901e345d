"""What Horovod's ranks are told, and where they meet."""
