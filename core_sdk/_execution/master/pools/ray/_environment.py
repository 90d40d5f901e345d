"""Runs a trial's command in the runtime environment that Ray has made on the node. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from core_sdk._ground.records import CommandRecord

# The fields that give an environment a Python of its own.
_INSTALLING = ("pip", "uv", "conda")


def in_runtime_env(
    command: CommandRecord, given: Mapping[str, Any], *, python: Path, cwd: Path, has_code: bool
) -> CommandRecord:
    """Returns the command in the runtime environment `given`, of which a process has the `python` and the `cwd`.

    With `has_code`, the experiment was submitted with its directory, and the command starts there.
    """
    variables, argv = {**command.environment, **(given.get("env_vars") or {})}, list(command.argv)
    if any(given.get(field) for field in _INSTALLING):
        variables["PATH"] = f"{python.parent}{os.pathsep}{variables.get('PATH', os.defpath)}"
        if (own := python.parent / Path(argv[0]).name).exists():
            argv[0] = str(own)
    here = str(cwd) if given.get("working_dir") and not has_code else command.cwd
    return msgspec.structs.replace(command, argv=argv, cwd=here, environment=variables)
