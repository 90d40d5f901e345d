"""Joining: the ranks of a group find their chief, prove the key to each other, and connect."""
