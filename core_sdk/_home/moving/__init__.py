"""Homes that were moved, copied or merged as a whole."""
