"""What another user of the machine can do to a home that is served: nothing."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from home.journals import new_trial, record, report
from masters import running_master
from processes import wait_for
from users import place  # noqa: F401

from core_sdk._home import Home

_NOBODY = 65534

# The attempts of a stranger: what came of each, by its name.
_STRANGER = """
import encodings.idna, http.client, json, os, socket, sys
root, port, pid, *files = sys.argv[1:]
os.setgroups([]); os.setgid(UID); os.setuid(UID)

def attempt(do):
    try:
        return str(do())
    except OSError as error:
        return type(error).__name__

def ask():
    connection = http.client.HTTPConnection("127.0.0.1", int(port))
    connection.request("GET", "/api/v1/runs")
    return connection.getresponse().status

def connect(path):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        return "connected"

print(json.dumps({
    "home": attempt(lambda: os.listdir(root)),
    "socket": attempt(lambda: connect(root + "/master.sock")),
    "page": attempt(ask),
    "words": attempt(lambda: open(f"/proc/{pid}/cmdline").read()),
    "variables": attempt(lambda: open(f"/proc/{pid}/environ").read()),
    "memory": attempt(lambda: open(f"/proc/{pid}/mem").read()),
    **{path: attempt(lambda: open(path, "rb").read()) for path in files},
}))
""".replace("UID", str(_NOBODY))

Serve = Callable[[Home], tuple[str, int]]


@pytest.fixture
def serve(place: Path) -> Iterator[Serve]:  # noqa: F811
    """Starts `core-sdk ui` on a terminal, where it opens a browser; gives its address and its process id."""
    started: list[tuple[subprocess.Popen[bytes], int]] = []

    def serve(home: Home) -> tuple[str, int]:
        screen, terminal = pty.openpty()
        variables = {"CORE_SDK_HOME": str(home.root), "TMPDIR": str(place), "BROWSER": "true"}
        command = [sys.executable, "-m", "core_sdk._interfaces.cli", "ui"]
        process = subprocess.Popen(command, stdout=terminal, stderr=terminal, env=os.environ | variables)
        os.close(terminal)
        started.append((process, screen))
        shown = b""
        while not (found := re.search(rb"http://\S+", shown)):
            shown += os.read(screen, 4096)
        wait_for(lambda: any(path.stat().st_size for path in place.glob("core-sdk-*.html")))
        return found[0].decode(), process.pid

    yield serve
    for process, screen in started:
        process.send_signal(signal.SIGTERM)
        process.wait()
        os.close(screen)


def _attempts(home: Home, url: str, pid: int, *files: Path) -> dict[str, str]:
    port = str(urlsplit(url).port)
    command = [sys.executable, "-c", _STRANGER, str(home.root), port, str(pid), *map(str, files)]
    told: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return told


@pytest.mark.parametrize("is_open", [False, True], ids=["closed home", "home that others may enter"])
def test_another_user_reads_nothing_and_asks_nobody(place: Path, serve: Serve, is_open: bool) -> None:  # noqa: F811
    """Another user can read neither the token nor the records and gets no answer from the server."""
    home = Home.create(place / "home")
    folder = new_trial(home)
    record(folder, report(1, loss=0.5))
    home.root.chmod(0o755 if is_open else 0o700)
    control = place / "readable"
    control.write_text("to all")
    control.chmod(0o644)
    with running_master(home):
        url, pid = serve(home)
        (entrance,) = place.glob("core-sdk-*.html")
        token = url.partition("token=")[2]
        secrets = [entrance, home.database, folder.journal_path(1), home.root / "master.lock"]
        wait_for(home.database.exists)  # the server makes it in its own time

        found = _attempts(home, url, pid, control, *secrets)

        assert token in entrance.read_text()

    assert found[str(control)] == "b'to all'"
    assert found["page"] == "401"
    assert "core_sdk._interfaces.cli" in found["words"]
    assert token not in json.dumps(found)
    denied = ["socket", "variables", "memory", *map(str, secrets), *([] if is_open else ["home"])]
    assert {name: found[name] for name in denied} == dict.fromkeys(denied, "PermissionError")
