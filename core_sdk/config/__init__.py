"""The configuration of an experiment.

`hyperparameters`, `searchers` and `lengths` have the types that a search works with.
"""
