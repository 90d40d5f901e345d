"""Names of metrics with slashes, as training scripts log them."""

from __future__ import annotations

_GROUPS = {"train": "training", "val": "validation", "valid": "validation", "eval": "validation"}
"""The groups that training scripts know by another name."""


def split_metric_name(name: str) -> tuple[str, str]:
    """Returns the group of a metric and its name there: what stands before the first slash, and what follows. Pure.

    "train" means "training"; "val", "valid" and "eval" mean "validation". Without a slash it is "training".
    """
    prefix, slash, rest = name.partition("/")
    return (_GROUPS.get(prefix, prefix), rest) if slash else ("training", name)
