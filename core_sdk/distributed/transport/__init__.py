"""Connections between two ranks: frames over sockets, objects as bytes, and memory files for large objects."""
