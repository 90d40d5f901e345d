"""The web page, served by another process than this one."""

from __future__ import annotations

import atexit
import html
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from core_sdk._ground.environment import agent_variables
from core_sdk._ground.environment.names import HOME_VARIABLE
from core_sdk.errors import CoreSDKError

_END_S = 5.0


class Ui:
    """A server of the web page. It ends with `close`, with its `with` block, or with this process.

    Anybody who has `url` can read the home and act in it.
    """

    def __init__(self, home_root: Path, port: int | None = None, homes: Sequence[str] = ()) -> None:
        """Starts the server, and blocks until it has an address. Raises `CoreSDKError`.

        `homes` are the patterns of homes that are read as one.
        """
        options = [] if port is None else ["--port", str(port)]
        options += [word for pattern in homes for word in ("--homes", pattern)]
        # `-P`: the user's working directory must not shadow our modules.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "core_sdk._interfaces.cli", "ui", "--no-browser", "--until-eof", *options],
            env=agent_variables() | {HOME_VARIABLE: str(home_root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None  # noqa: S101  (a pipe)
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            _, errors = self._process.communicate()
            output = errors.strip() or "its process ended without a word"
            raise CoreSDKError(f"the web page cannot be served: {output}")
        atexit.register(self.close)

    def __repr__(self) -> str:
        return f"Ui(url={self.url!r})"

    def _repr_html_(self) -> str:
        url = html.escape(self.url)
        return f'<a href="{url}" target="_blank" rel="noopener">{url.partition("/#")[0]}</a>'

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the server. Trainings go on."""
        atexit.unregister(self.close)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()  # the server ends when its input does
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
