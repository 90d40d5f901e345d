"""Carries out a verb that somebody has asked for in a workspace, like a command of the machine's user."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec

from core_sdk._ground.decoding import convert
from core_sdk._home import Home


def carry_out(home: Home, trial_id: int, verb: str, by: str, arguments: Mapping[str, Any]) -> Any:
    """Does the verb to a trial of the home, or to its experiment, and returns the verb's answer as JSON.

    Raises what the verb raises, and `ValueError` or `TypeError` for a verb that nobody may ask for, or for other
    arguments than it has.
    """
    from core_sdk._execution.steering.table import VERBS  # much that a pusher needs only now

    known = {one.asked_as: one for one in VERBS if one.is_asked_of_home or one.is_told_home}
    if verb not in known:
        raise ValueError(f"this version of Core SDK does not {verb} a trial that somebody asks for from afar")
    function = known[verb].function
    hints = get_type_hints(function)
    given = {name: convert(value, hints[name], strict=False) for name, value in arguments.items() if name in hints}
    if "by" in inspect.signature(function).parameters:
        given["by"] = by
    found = known[verb]
    subject_id = trial_id if found.subject == "trial" else home.trial(trial_id).read_record().experiment_id
    return msgspec.to_builtins(found(home, subject_id, **given))
