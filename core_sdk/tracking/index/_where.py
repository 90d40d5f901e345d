"""Conditions of queries."""

from __future__ import annotations

from typing import NamedTuple


class Where(NamedTuple):
    """Over the tables `trial` and `attempt` or `experiment`, as the query joins them."""

    sql: str = "TRUE"
    values: tuple[object, ...] = ()
