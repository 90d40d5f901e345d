"""Experiments: trials that share a configuration, a code directory and a searcher."""
