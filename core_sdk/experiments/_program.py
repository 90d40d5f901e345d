"""Whether the program of an entrypoint can be found, asked when the experiment is submitted."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from core_sdk.config import ExperimentConfig, command_of, to_mapping
from core_sdk.environment import recorded_variables
from core_sdk.errors import ConfigProblem, InvalidConfigError
from core_sdk.experiments.code import STARTUP_HOOK, PackedCode
from core_sdk.tracking.attempts.slots import configured_variables

# A word that means itself to a shell.
_PLAIN_WORD = re.compile(r"\s*([\w@%+:,./-]+)(?=\s|$)")


def check_program(config: ExperimentConfig, code: PackedCode | None, source: str) -> None:
    """Raises `InvalidConfigError` if the first word of the entrypoint is not a program.

    Words with which a shell does more than start a program are not judged, and a startup hook may bring any program.
    """
    if code is not None and STARTUP_HOOK in code.programs:
        return
    command = command_of(config.entrypoint, config.resources.slots_per_trial)
    if isinstance(command, str):
        word = _PLAIN_WORD.match(command)
        program = word[1] if word else "sh"
    else:
        program = command[0]
    if os.sep in program and not os.path.isabs(program):  # noqa: PTH117
        is_there, where = _is_in_code(program, code), "is not an executable file of the code directory"
    else:
        is_there, where = _is_known(program, command, config), "does not exist, or cannot be executed"
    if not is_there:
        problem = f"begins with the program {program!r}, which {where}"
        raise InvalidConfigError([ConfigProblem(source, None, "entrypoint", problem)])


def _is_in_code(program: str, code: PackedCode | None) -> bool:
    if code is None:
        return os.access(program, os.X_OK)
    path = Path(os.path.normpath(program))
    return not code.programs.isdisjoint(map(str, (path, *path.parents)))  # it may lie behind a link to a directory


def _is_known(program: str, command: str | tuple[str, ...], config: ExperimentConfig) -> bool:
    path = configured_variables(to_mapping(config), has_gpus=True).get("PATH")
    if not isinstance(command, str):
        return shutil.which(program, path=path) is not None
    # The shell itself knows best what its words are.
    question = ["sh", "-c", 'command -v -- "$1"', "sh", program]
    variables = recorded_variables() | ({"PATH": path} if path else {})
    return subprocess.run(question, env=variables, stdout=subprocess.DEVNULL, check=False).returncode == 0
