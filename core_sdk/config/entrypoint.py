"""The command that an experiment's trials run."""

from __future__ import annotations

import re

Entrypoint = str | tuple[str, ...]

LAUNCHERS = ("torch_distributed", "deepspeed", "horovod", "tensorflow", "wrap_rank")

_OLD_LAUNCHER = re.compile(r"(-m\s+)determined\.(launch\.\w+)")
_TRIAL_CLASS = re.compile(r"[\w.]+:\w+|.*-m\s+determined\.exec\.harness\b.*", re.DOTALL)


def entrypoint_argv(entrypoint: Entrypoint) -> list[str]:
    """The arguments that start the command: a string is run by a shell, a list as it is.

    `python3 -m determined.launch.X` becomes `python3 -m launch.X`.
    """
    if isinstance(entrypoint, str):
        return ["sh", "-c", _OLD_LAUNCHER.sub(r"\1\2", entrypoint)]
    before = ("", *entrypoint)
    return [
        argument.removeprefix("determined.") if flag == "-m" and argument.startswith("determined.launch.") else argument
        for flag, argument in zip(before, entrypoint, strict=False)
    ]


def problem_of(entrypoint: Entrypoint) -> str | None:
    """What is wrong with it; None if it can be started, as far as its text tells."""
    words = entrypoint if isinstance(entrypoint, str) else " ".join(entrypoint)
    if not words.strip() or not entrypoint[0]:
        return "is empty: it is the command that each trial runs, such as `python3 train.py`"
    if _TRIAL_CLASS.fullmatch(words):
        return f"names a Trial class, {words!r}, which this version cannot run: give the command of a script instead"
    for launcher in re.findall(r"-m\s+(?:determined\.)?launch\.(\w+)", words):
        if launcher not in LAUNCHERS:
            return f"names the launcher {launcher!r}, which does not exist; there are {', '.join(LAUNCHERS)}"
    return None
