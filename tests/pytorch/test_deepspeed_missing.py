"""DeepSpeed's trials without DeepSpeed."""

from __future__ import annotations

import importlib
import sys

import pytest

from core_sdk.errors import MissingDependencyError


def test_the_missing_library_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """If DeepSpeed is missing, the error has the command that installs it."""
    monkeypatch.setitem(sys.modules, "deepspeed", None)

    with pytest.raises(
        MissingDependencyError, match=r'core_sdk.pytorch.deepspeed needs DeepSpeed: pip install "deepspeed'
    ):
        importlib.import_module("core_sdk.pytorch.deepspeed")
