"""Where the home is if no variable names one."""

from __future__ import annotations

import os
import subprocess
import sys

import platformdirs
import pytest

from core_sdk._ground.environment import Environment


@pytest.mark.parametrize("variables", [{}, {"XDG_DATA_HOME": "/data"}, {"HOME": "/"}, {"HOME": "/home/somebody/"}])
def test_the_default_home_is_where_the_platform_keeps_data(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    """The home is the directory of platformdirs, also in the usual case, in which that is not asked."""
    for name in ("CORE_SDK_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert str(Environment.read().home) == os.path.normpath(platformdirs.user_data_dir("core-sdk", appauthor=False))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the platform has more to say")
def test_the_usual_home_is_found_without_another_library() -> None:
    """Finding the home of a user without variables of their own imports no library that takes long."""
    program = "from core_sdk._ground.environment import Environment as E; import sys; E.read(); print(*sys.modules)"

    loaded = subprocess.check_output([sys.executable, "-c", program], env={"HOME": "/home/somebody"}, text=True)

    assert "platformdirs" not in loaded.split()
