"""Tells in a few lines the result of a try: for the end of `core-sdk try`, and for evidence."""

from __future__ import annotations

from core_sdk._analysis.studies._alarms import alarms
from core_sdk._analysis.studies._board import board_line, difference_text, value_text
from core_sdk._home import Home, View
from core_sdk._home.finding.tries import Tries, Try


def judgement_lines(home: Home, view: View, tries: Tries, one: Try) -> list[str]:
    """Returns the value of a try, its difference to its parent and what is suspicious, a line each."""
    line = board_line(tries, one)
    told = [f"try {one.try_id}: {tries.metric.name} {value_text(line)} (n = {line.num_values} of {line.num_seeds})"]
    if (parent := tries.parent_of(one)) is not None:
        before = board_line(tries, parent)
        told.append(f"parent {parent.try_id}: {value_text(before)} (n = {before.num_values})")
        if line.difference is not None:
            told.append(f"difference: {difference_text(line)} (95 %, {line.method})")
    return [*told, *(f"alarm: {each}" for each in alarms(home, view, tries, one))]
