"""Checks, when an experiment is submitted, that the program of its entrypoint can be found."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from core_sdk._execution.experiments.code import STARTUP_HOOK, PackedCode
from core_sdk._ground.config import ExperimentConfig, command_of, entrypoint_argv, to_mapping
from core_sdk._ground.config.searchers import CustomSearcher
from core_sdk._ground.environment import recorded_variables
from core_sdk._ground.environment.arguments import named
from core_sdk._home.attempts.variables import configured_variables
from core_sdk.errors import ConfigProblem, InvalidConfigError

# A word that a shell does not change.
_PLAIN_WORD = re.compile(r"\s*([\w@%+:,./-]+)(?=\s|$)")
_PLAIN_WORDS = re.compile(r"[\w\s@%+:,./=-]+")
_PYTHON_OPTIONS = frozenset({"-u", "-O", "-OO", "-B", "-E", "-I", "-s", "-q"})
_PYTHON = re.compile(r"python[\d.]*")
_HAS_CORE_SDK = "import importlib.util, sys; sys.exit(importlib.util.find_spec('core_sdk') is None)"
_PYTHON_S = 20.0


def check_program(config: ExperimentConfig, code: PackedCode | None, source: str) -> tuple[str, ...]:
    """Raises `InvalidConfigError` if the first word of the entrypoint is not a program; returns warnings.

    A command with which a shell does more than start a program is not judged. Nothing is checked if the code has a
    startup hook, since the hook may provide any program.
    """
    if code is not None and STARTUP_HOOK in code.programs:
        return ()
    command = command_of(config.entrypoint, config.resources.slots_per_trial)
    if isinstance(command, str):
        word = _PLAIN_WORD.match(command)
        program = word[1] if word else "sh"
    else:
        program = command[0]
    if os.sep in program and not os.path.isabs(program):  # noqa: PTH117
        found = program if _is_in_code(program, code) else None
        where = "is not an executable file of the code directory"
    else:
        found, where = _find(program, command, config), "does not exist, or cannot be executed"
    if found is None:
        problem = f"begins with the program {program!r}, which {where}"
        raise InvalidConfigError([ConfigProblem(source, None, "entrypoint", problem)])
    warnings = []
    if (script := _script(command)) is not None and not _has_script(script, code):
        where = "the working directory" if code is None else "the code directory"
        warnings.append(f"runs the script {script!r}, which is not in {where}")
    if _PYTHON.fullmatch(program) and not _has_core_sdk(found, config):
        warnings.append(
            f"begins with {program}, which is {found} and has no core_sdk; core-sdk itself runs with {sys.executable}. "
            "Activate the environment of your scripts before you submit, or begin with the path of their Python"
        )
    return tuple(str(ConfigProblem(source, None, "entrypoint", warning)) for warning in warnings)


def check_arguments(config: ExperimentConfig, source: str) -> None:
    """Raises `InvalidConfigError` if the entrypoint names a hyperparameter that trials will not have.

    A search method of the user's own may choose any names. Also refuses `${lr}` and `{{lr}}`, of which a shell makes
    nothing or leaves it as it is, if there is a hyperparameter `lr` and nothing sets a variable of this name.
    """
    if isinstance(config.searcher, CustomSearcher):
        return
    names = [".".join(path) for path, _ in config.hyperparameters.leaves()]
    groups = {name.rpartition(".")[0] for name in names}
    argv = entrypoint_argv(config.entrypoint, config.resources.slots_per_trial)
    problems = [
        f"names ${{hparams.{name}}}, but the hyperparameters are {', '.join(names) or 'none'}"
        for name in dict.fromkeys(named(argv))
        if not any(name == known or name.startswith(f"{known}.") for known in (*names, *groups - {""}))
    ]
    text, variables = " ".join(argv), _variables(config) | configured_variables(to_mapping(config), has_gpus=True)
    for name in names:
        for written in (f"${{{name}}}", f"{{{{{name}}}}}", f"{{{{ {name} }}}}"):
            if written in text and name not in variables and f"{name}=" not in text.replace(f"--{name}=", ""):
                problems.append(f"has {written}, which no value replaces: write ${{hparams.{name}}}")
    if problems:
        raise InvalidConfigError([ConfigProblem(source, None, "entrypoint", problem) for problem in problems])


def _script(command: str | tuple[str, ...]) -> str | None:
    """Returns the file that a Python is given to run, or None if there is none, or a shell does more than start it."""
    if isinstance(command, str) and not _PLAIN_WORDS.fullmatch(command):
        return None
    words = command.split() if isinstance(command, str) else command
    for word, script in itertools.pairwise(word for word in words if word not in _PYTHON_OPTIONS):
        if _PYTHON.fullmatch(Path(word).name) and script.endswith(".py"):
            return script
    return None


def _has_script(script: str, code: PackedCode | None) -> bool:
    if code is None or Path(script).is_absolute():
        return Path(script).exists()
    path = Path(os.path.normpath(script))
    # It may lie behind a link to a directory.
    return path.as_posix() in code.scripts or not code.programs.isdisjoint(map(str, path.parents))


def _is_in_code(program: str, code: PackedCode | None) -> bool:
    if code is None:
        return os.access(program, os.X_OK)
    path = Path(os.path.normpath(program))
    return not code.programs.isdisjoint(map(str, (path, *path.parents)))  # it may lie behind a link to a directory


def _find(program: str, command: str | tuple[str, ...], config: ExperimentConfig) -> str | None:
    variables = _variables(config)
    if not isinstance(command, str):
        return shutil.which(program, path=variables.get("PATH"))
    # The program may be a builtin of the shell.
    question = ["sh", "-c", 'command -v -- "$1"', "sh", program]
    answer = subprocess.run(question, env=variables, stdout=subprocess.PIPE, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else None


def _has_core_sdk(python: str, config: ExperimentConfig) -> bool:
    """Returns whether this Python can import Core SDK. Returns True if it is our own, or does not answer."""
    if Path(python).parent == Path(sys.executable).parent:
        return True
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        question = [python, "-c", _HAS_CORE_SDK]
        answer = subprocess.run(
            question, env=_variables(config), stderr=subprocess.DEVNULL, cwd="/", timeout=_PYTHON_S, check=False
        )
        return answer.returncode != 1
    return True


def _variables(config: ExperimentConfig) -> dict[str, str]:
    path = configured_variables(to_mapping(config), has_gpus=True).get("PATH")
    return recorded_variables() | ({"PATH": path} if path else {})
