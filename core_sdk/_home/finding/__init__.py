"""Finds trials by their values: the names of these values, conditions on them, and orders by them."""
