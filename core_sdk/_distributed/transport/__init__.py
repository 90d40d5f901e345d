"""Connections between two ranks: frames over sockets, and objects as bytes."""
