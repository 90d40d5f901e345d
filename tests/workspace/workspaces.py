"""A server of workspaces in a process of its own, and homes that send their records there."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from core_sdk import core
from core_sdk._home import Home, TrialFolder
from core_sdk._interfaces.lab.door import Door
from core_sdk._interfaces.lab.folder import Lab
from core_sdk._interfaces.lab.site import plan_site
from core_sdk._interfaces.server.pages import read_page
from core_sdk._workspace.connection import WorkspaceConnection
from core_sdk._workspace.pushing import Pusher
from core_sdk._workspace.routes import workspace_routes

PATH = "/w/lab"


def app_of(home: Home) -> Starlette:
    return Starlette(routes=[Mount(f"{PATH}/api/v1", routes=workspace_routes(home))])


@contextlib.contextmanager
def served(home: Home, port: int = 0) -> Iterator[str]:
    """Serves a home as a workspace, from a thread, and yields its address."""
    with _listening(port) as bound, _serving(app_of(home), bound) as url:
        yield f"{url}{PATH}"


@contextlib.contextmanager
def served_by_lab(home: Home, root: Path) -> Iterator[tuple[str, str]]:
    """Serves a home as a workspace of a lab, from a thread, and yields its address and the token of a reader."""
    lab = Lab.create(root)
    (root / "workspaces" / "lab").symlink_to(home.root)
    lab.people.set_role("lab", "reader", "reader")
    token, _ = lab.people.issue("token", "reader", None, workspace="lab")
    with _listening() as bound:
        port = bound.getsockname()[1]
        site = plan_site("127.0.0.1", port, url=None, has_tls=False, proxies=(), person_header="")
        door = Door(lab, site, read_page(), workspace_routes)
        with _serving(door, bound) as url:
            yield f"{url}{PATH}", token
        door.workspaces.close()


@contextlib.contextmanager
def _listening(port: int = 0) -> Iterator[socket.socket]:
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", port))
        bound.listen(128)
        yield bound


@contextlib.contextmanager
def _serving(app: ASGIApp, bound: socket.socket) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", loop="asyncio", ws="none", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


class ServerProcess:
    """A server that can be killed, and started again at the same port."""

    def __init__(self, home: Home, port: int) -> None:
        self._home = home
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{port}{PATH}"

    def start(self) -> None:
        """Starts it, and waits until it listens."""
        command = [sys.executable, str(Path(__file__)), str(self._home.root), str(self._port)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"listening\n"

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


def pushed(home: Home, url: str, *trial_ids: int, with_checkpoints: bool = False) -> Pusher:
    """Sends these trials, or all, and returns the pusher."""
    with WorkspaceConnection(url) as connection:
        pusher = Pusher(home, connection, with_checkpoints=with_checkpoints)
        pusher.push(trial_ids or home.trial_ids())
    return pusher


def train(home: Home, steps: int) -> TrialFolder:
    """Trains for some steps, and returns the trial."""
    with core.init(name="digits", hparams={"lr": 0.1}) as ctx:
        for step in range(steps):
            ctx.train.report_training_metrics(steps_completed=step, metrics={"loss": 1 / (step + 1)})
        return home.folder(ctx.info.trial.trial_id)


if __name__ == "__main__":
    with served(Home(Path(sys.argv[1])), int(sys.argv[2])):
        print("listening", flush=True)
        signal.pause()
