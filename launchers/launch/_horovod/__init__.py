"""Horovod's options, variables and rendezvous."""
