"""Trials found by what they are: the names that a trial can be asked for, conditions over them, and their order."""
