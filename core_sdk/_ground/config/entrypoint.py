"""The command that an experiment's trials run."""

from __future__ import annotations

import re

Entrypoint = str | tuple[str, ...]

LAUNCHERS = ("torch_distributed", "deepspeed", "horovod", "tensorflow", "wrap_rank")

_OLD_LAUNCHER = re.compile(r"(-m\s+)determined\.(launch\.\w+)")
_OLD_HARNESS = re.compile(r"(-m\s+)determined\.exec\.harness\b")
_TRIAL_CLASS = re.compile(r"[\w.]+:[\w.]+")
_TRAINS_CLASS = re.compile(r"--trial\b|-m\s+(core_sdk\.pytorch|determined\.exec\.harness)\b")


def entrypoint_argv(entrypoint: Entrypoint, num_slots: int) -> list[str]:
    """Returns the arguments that start the command. A shell runs a string; a list is run as it is."""
    command = command_of(entrypoint, num_slots)
    return ["sh", "-c", command] if isinstance(command, str) else list(command)


def command_of(entrypoint: Entrypoint, num_slots: int) -> Entrypoint:
    """Returns the command that an entrypoint stands for.

    `module:Class` is a Trial class, which torchrun's launcher trains on several slots. `python3 -m determined.launch.X`
    becomes `python3 -m launch.X`, and `determined.exec.harness` becomes `core_sdk.pytorch`.
    """
    if isinstance(entrypoint, str):
        if _TRIAL_CLASS.fullmatch(entrypoint.strip()):
            return _trial_class_command(entrypoint.strip(), num_slots)
        return _OLD_HARNESS.sub(r"\1core_sdk.pytorch", _OLD_LAUNCHER.sub(r"\1\2", entrypoint))
    before = ("", *entrypoint)
    return tuple(
        _module(argument) if flag == "-m" else argument for flag, argument in zip(before, entrypoint, strict=False)
    )


def trains_class(entrypoint: Entrypoint) -> bool:
    """Returns whether the entrypoint trains a Trial class without a script, as far as its text tells."""
    words = entrypoint if isinstance(entrypoint, str) else " ".join(entrypoint)
    return bool(_TRIAL_CLASS.fullmatch(words.strip()) or _TRAINS_CLASS.search(words))


def problem_of(entrypoint: Entrypoint) -> str | None:
    """Returns what is wrong with the entrypoint, or None if its text shows no problem."""
    words = entrypoint if isinstance(entrypoint, str) else " ".join(entrypoint)
    if not words.strip() or not entrypoint[0]:
        return "is empty: it is the command that each trial runs, such as `python3 train.py`"
    for launcher in re.findall(r"-m\s+(?:determined\.)?launch\.(\w+)", words):
        if launcher not in LAUNCHERS:
            return f"names the launcher {launcher!r}, which does not exist; there are {', '.join(LAUNCHERS)}"
    return None


def _trial_class_command(trial_class: str, num_slots: int) -> tuple[str, ...]:
    if num_slots > 1:
        return ("python3", "-m", "launch.torch_distributed", "--trial", trial_class)
    return ("python3", "-m", "core_sdk.pytorch", trial_class)


def _module(name: str) -> str:
    if name == "determined.exec.harness":
        return "core_sdk.pytorch"
    return name.removeprefix("determined.") if name.startswith("determined.launch.") else name
