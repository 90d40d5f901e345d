"""Finds what a resumed training has forgotten, by the fingerprints that checked trainings record."""
