"""Trainings over several hosts, each with a launcher of its own."""
