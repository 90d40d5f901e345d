"""Decides which commands can start warm: what a process becomes must not depend on how it has begun."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from core_sdk._ground.environment.names import OWN_PREFIX

# A shell would do more with other characters than to split words.
_PLAIN = re.compile(r"[\w@%+=:,./\s-]+", re.ASCII)
_SHELLS = ("sh", "/bin/sh", "/usr/bin/sh")
# They start processes of their own, which import what they need.
_LAUNCHERS = ("launch", "core_sdk.launch", "torch.distributed", "accelerate", "deepspeed", "horovod", "ray")
# Each trial has its own values. Libraries read CUDA's when they first use a GPU, which a warm process never does.
_OWN_PREFIXES = (OWN_PREFIX, "DET_")
_OWN_NAMES = frozenset({"CUDA_VISIBLE_DEVICES"})


class PythonProgram(msgspec.Struct, frozen=True):
    """A Python program: a script, or a module if `is_module`, and its arguments."""

    python: str
    """The command that names the interpreter."""
    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False
    is_unbuffered: bool = False
    """Whether `-u` is given. It changes nothing, since agents set PYTHONUNBUFFERED."""

    @property
    def words(self) -> list[str]:
        """The words of its command line."""
        options = [*(["-u"] if self.is_unbuffered else []), *(["-m"] if self.is_module else [])]
        return [self.python, *options, self.name, *self.arguments]


def program_of(argv: Sequence[str]) -> PythonProgram | None:
    """Returns the Python program that a command runs, also by a shell; None if it is another command.

    A command that gives an option to Python, other than `-u`, is another one. So are launchers.
    """
    if len(argv) == 3 and argv[0] in _SHELLS and argv[1] == "-c":
        if not _PLAIN.fullmatch(argv[2]):
            return None
        argv = argv[2].split()
    python, *rest = argv or [""]
    if "=" in python or not python.rpartition("/")[2].startswith("python"):
        return None
    if is_unbuffered := rest[:1] == ["-u"]:
        rest = rest[1:]
    if is_module := rest[:1] == ["-m"]:
        rest = rest[1:]
    name, *arguments = rest or [""]
    is_known = name.replace(".", "").isidentifier() and not _is_launcher(name) if is_module else name.endswith(".py")
    if name.startswith("-") or not is_known:
        return None
    return PythonProgram(python, name, tuple(arguments), is_module, is_unbuffered)


def differing(variables: Mapping[str, str], other: Mapping[str, str]) -> set[str]:
    """Returns the names of variables that a library may have read, and that two environments have differently."""
    names = variables.keys() | other.keys()
    return {name for name in names if variables.get(name) != other.get(name) and not is_of_one_trial(name)}


def is_of_one_trial(name: str) -> bool:
    """Returns whether a variable may differ between trials that start from one warm process."""
    return name.startswith(_OWN_PREFIXES) or name in _OWN_NAMES


def _is_launcher(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in _LAUNCHERS)
