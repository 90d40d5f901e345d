"""The order of trials by one of their values."""

from __future__ import annotations

from collections.abc import Sequence

from core_sdk._home.finding.facts import Facts


def in_order(found: Sequence[Facts], sort: str) -> list[Facts]:
    """Returns the trials sorted by the value of a name, descending if it has "-" before it.

    Trials without such a value come last.
    """
    name, is_descending = sort.removeprefix("-"), sort.startswith("-")
    numbers, texts, without = list[Facts](), list[Facts](), list[Facts]()
    values = {one.row.trial_id: one.value(name) for one in found}
    for one in found:
        value = values[one.row.trial_id]
        if value is None or value != value:  # NaN does not equal itself
            without.append(one)
        else:
            (texts if isinstance(value, str) else numbers).append(one)
    for comparable in (numbers, texts):
        comparable.sort(key=lambda one: values[one.row.trial_id], reverse=is_descending)
    return [*texts, *numbers, *without] if is_descending else [*numbers, *texts, *without]
