"""Tells in a few lines the result of a try: for the end of `core-sdk try`, and for evidence."""

from __future__ import annotations

from core_sdk._analysis.studies._board import (
    BoardLine,
    at_step_text,
    board_line,
    difference_text,
    read_line_of,
    state_text,
    value_text,
)
from core_sdk._ground.records import StudyRecord
from core_sdk._home import Home, View
from core_sdk._home.finding.tries import Tries, Try


def judgement_lines(home: Home, view: View, study: StudyRecord, tries: Tries, one: Try) -> list[str]:
    """Returns the value of a try, its difference to its parent and what is suspicious, a line each."""
    line = read_line_of(home, view, study, tries, one)
    value = f"{tries.metric.name} {value_text(line)}{at_step_text(line)}"
    told = [f"try {one.try_id}: {value} (n = {line.num_values} of {line.num_seeds}){_how_far(line)}"]
    if (parent := tries.parent_of(one)) is not None:
        before = board_line(tries, parent)
        told.append(f"parent {parent.try_id}: {value_text(before)} (n = {before.num_values})")
        if line.difference is not None:
            told.append(f"difference{at_step_text(line)}: {difference_text(line)} (95 %, {line.method})")
    return [*told, *(f"alarm: {each}" for each in line.alarms)]


def _how_far(line: BoardLine) -> str:
    """Returns the state of a try that has not ended, with its progress; empty for one that has."""
    return f", {state_text(line)}" if line.state in ("running", "queued") else ""
