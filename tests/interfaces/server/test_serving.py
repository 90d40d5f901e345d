"""The server as a process: its address, its end, and what it tells open pages."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from home.journals import append, lines, new_trial, record, report
from interfaces.cli.commands import StartCli
from interfaces.cli.conftest import start_cli
from interfaces.server.test_actions import TRAIN
from processes import Script

from core_sdk._home import Home
from core_sdk._home.index._database import database_lock
from core_sdk._interfaces.server.serving import listen

__all__ = ["start_cli"]


_STRANGER = """
import socket, sys
socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close()  # loads what another user may not be able to read
import os
os.setgroups([]); os.setgid(65534); os.setuid(65534)
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(400)]
for _ in range(200):
    socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close()
"""


def token_of(url: str) -> str:
    """Returns the token in the address that `core-sdk ui` prints."""
    return urlsplit(url).fragment.removeprefix("token=")


def port_of(url: str) -> int:
    return urlsplit(url).port or 80


class Page:
    """An open page that listens to events."""

    def __init__(self, url: str, last_id: str | None = None) -> None:
        self._connection = HTTPConnection("127.0.0.1", port_of(url), timeout=20)
        self._headers = {"Authorization": f"Bearer {token_of(url)}"}
        if last_id is not None:
            self._headers["Last-Event-ID"] = last_id
        self._connection.request("GET", "/api/v1/events", headers=self._headers)
        self.response = self._connection.getresponse()
        self.last_id = ""

    def next_event(self) -> tuple[str, dict[str, object]]:
        kind = ""
        while True:
            line = self.response.readline().decode().rstrip("\n")
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "id":
                self.last_id = value
            elif name == "data":
                return kind, msgspec.json.decode(value)

    def await_change(self, trial_id: int) -> None:
        while trial_id not in self.next_event()[1].get("trials", []):  # type: ignore[operator]
            pass

    def close(self) -> None:
        self.response.close()
        self._connection.close()


@pytest.fixture
def start_ui(start_cli: StartCli) -> Callable[..., tuple[Script, str]]:
    """Starts `core-sdk ui`, and gives the address that it prints."""

    def start(*arguments: str) -> tuple[Script, str]:
        script = start_cli("ui", "--no-browser", *arguments)
        assert script.process.stdout is not None
        return script, script.process.stdout.readline().strip()

    return start


def ask(url: str, path: str) -> dict[str, object]:
    connection = HTTPConnection("127.0.0.1", port_of(url), timeout=20)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token_of(url)}"})
    answer: dict[str, object] = msgspec.json.decode(connection.getresponse().read())
    connection.close()
    return answer


def test_the_page_is_served_until_ctrl_c(home: Home, start_ui: Callable[..., tuple[Script, str]]) -> None:
    """`core-sdk ui` prints only the address with its token on stdout and serves until Ctrl-C."""
    record(new_trial(home), report(1, loss=0.5))

    script, url = start_ui()
    answer = ask(url, "/api/v1/runs")
    script.process.send_signal(signal.SIGINT)
    status, out, err = script.wait()

    assert answer["num_trials"] == 1
    assert re.fullmatch(r"http://[0-9a-f]{32}\.localhost:\d+/#token=[0-9a-f]{48}", url)
    assert (status, out) == (0, "")
    assert token_of(url) not in err


def test_the_first_look_at_the_records_is_told_of(home: Home, start_ui: Callable[..., tuple[Script, str]]) -> None:
    """While the records are first read, the server reports its progress and other questions wait."""
    record(new_trial(home), report(1, loss=0.5))

    with ThreadPoolExecutor(1) as executor, database_lock(home.database):
        _, url = start_ui()
        waiting = ask(url, "/api/v1/home")
        other, other_url = start_ui()
        ask(other_url, "/api/v1/home")  # it listens, and hears signals
        other.process.send_signal(signal.SIGINT)
        status, _, _ = other.wait()
        question = executor.submit(ask, url, "/api/v1/runs")
        again = ask(url, "/api/v1/home")
        was_answered = question.done()
    answer = question.result()

    assert waiting["reading"] == again["reading"] == {"num_read": 0, "num_trials": 0, "num_points": 0}
    assert (was_answered, answer["num_trials"]) == (False, 1)
    assert ask(url, "/api/v1/home")["reading"] is None
    assert status == 0


def test_a_port_in_use_is_refused_with_a_free_one(start_ui: Callable[..., tuple[Script, str]]) -> None:
    """With --port a port in use is refused with a free one named."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        script, url = start_ui("--port", str(port))
        status, _, err = script.wait()

    assert (status, url) == (1, "")
    assert f"port {port} of 127.0.0.1 is in use" in err
    assert "is free" in err


def test_the_end_of_an_answer_is_not_held_back() -> None:
    """TCP_NODELAY is set, so that the end of an answer is not delayed."""

    async def is_sent_at_once() -> bool:
        found: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            found.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0)
            writer.close()

        listening = listen("127.0.0.8", None)
        async with await asyncio.start_server(accept, sock=listening[0]):
            _, writer = await asyncio.open_connection(*listening[0].getsockname())
            writer.close()
            return await found

    assert asyncio.run(is_sent_at_once())


def test_another_address_needs_a_token(start_ui: Callable[..., tuple[Script, str]]) -> None:
    """--host without a token is refused with what would be exposed."""
    script, url = start_ui("--host", "0.0.0.0")
    status, _, err = script.wait()

    assert (status, url) == (2, "")
    assert "whoever has the token can pause, resume, kill and delete" in " ".join(err.split())


def test_pages_hear_of_what_is_reported(
    home: Home, start_ui: Callable[..., tuple[Script, str]], start_script: Callable[..., Script]
) -> None:
    """Pages get events of new trials, reports and deletions."""
    folder = new_trial(home)
    record(folder, report(1, loss=0.5))
    _, url = start_ui()
    page = Page(url)
    assert page.next_event()[0] == "hello"

    append(folder, 1, lines(report(2, loss=0.4)))
    page.await_change(folder.trial_id)
    start_script(TRAIN)
    page.await_change(folder.trial_id + 1)
    page.await_change(folder.trial_id + 1)
    page.close()


def test_a_page_that_was_away_hears_what_it_missed(home: Home, start_ui: Callable[..., tuple[Script, str]]) -> None:
    """A page that reconnects gets the events that it missed, or is told to ask for everything."""
    folder = new_trial(home)
    record(folder, report(1, loss=0.5))
    _, url = start_ui()
    watching, away = Page(url), Page(url)
    assert away.next_event()[0] == "hello"
    away.close()

    append(folder, 1, lines(report(2, loss=0.4)))
    watching.await_change(folder.trial_id)
    back = Page(url, away.last_id)
    back.await_change(folder.trial_id)
    foreign = Page(url, "another-7")
    events = [foreign.next_event(), foreign.next_event()]

    assert back.last_id == watching.last_id
    assert events[1] == ("change", {"everything": True})
    for page in (watching, back, foreign):
        page.close()


def test_a_server_ends_although_pages_are_open(start_ui: Callable[..., tuple[Script, str]]) -> None:
    """A server ends within seconds although pages are open."""
    script, url = start_ui()
    page = Page(url)
    page.next_event()

    script.process.send_signal(signal.SIGTERM)
    status, _, _ = script.wait()
    page.close()

    assert status in (0, -signal.SIGTERM, 128 + signal.SIGTERM)


def test_idle_connections_of_others_do_not_block_the_page(
    home: Home, start_ui: Callable[..., tuple[Script, str]]
) -> None:
    """Hundreds of idle connections block neither requests nor open streams."""
    _, url = start_ui()
    page = Page(url)
    page.next_event()
    port = port_of(url)
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(600)]

    answer = ask(url, "/api/v1/runs")
    record(new_trial(home), report(1, loss=0.5))
    page.await_change(1)

    assert answer["num_trials"] == 0
    for connection in idle:
        connection.close()
    page.close()


def test_idle_connections_of_others_do_not_cut_off_a_page_that_loads(
    start_ui: Callable[..., tuple[Script, str]],
) -> None:
    """Idle connections do not cut off a page that is loading."""
    _, url = start_ui()
    connection = HTTPConnection("127.0.0.1", port_of(url), timeout=20)

    def load() -> int:
        connection.request("GET", "/main.js", headers={"Host": urlsplit(url).netloc})
        response = connection.getresponse()
        response.read()
        return response.status

    first = load()
    idle = [socket.create_connection(("127.0.0.1", port_of(url))) for _ in range(300)]
    ask(url, "/api/v1/runs")  # the server has seen them
    second = load()

    assert (first, second) == (200, 200)
    connection.close()
    for each in idle:
        each.close()


def test_connections_of_another_user_do_not_push_out_one_that_has_not_yet_asked(
    start_ui: Callable[..., tuple[Script, str]],
) -> None:
    """Connections of another user do not push out one that has not yet sent its request."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: other users; only root can be another user")
    _, url = start_ui()
    slow = HTTPConnection("127.0.0.1", port_of(url), timeout=60)
    slow.connect()

    subprocess.run([sys.executable, "-c", _STRANGER, str(port_of(url))], check=True)
    ask(url, "/api/v1/runs")  # the server has seen them
    slow.request("GET", "/main.js", headers={"Host": urlsplit(url).netloc})

    assert slow.getresponse().status == 200
    slow.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET"])
def test_a_request_without_an_end_is_given_up(start_ui: Callable[..., tuple[Script, str]], sent: bytes) -> None:
    """A request that is never completed is dropped."""
    _, url = start_ui()
    port = port_of(url)

    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(65536):
                pass


def test_ctrl_c_with_an_open_page_says_nothing_of_tasks(start_ui: Callable[..., tuple[Script, str]]) -> None:
    """Ctrl-C with an open page prints no traceback."""
    script, url = start_ui()
    page = Page(url)
    page.next_event()

    script.process.send_signal(signal.SIGINT)
    status, _, err = script.wait()
    page.close()

    assert status == 0
    assert "Traceback" not in err
    assert "Exception" not in err
    assert "Cancel" not in err


def test_a_token_file_that_others_can_read_is_told_of(
    start_ui: Callable[..., tuple[Script, str]], tmp_path: Path
) -> None:
    """A token file that others can read causes a warning with the command that fixes it."""
    path = tmp_path / "token"
    path.write_text("a" * 32)
    errors = []
    for mode in (0o644, 0o600):
        path.chmod(mode)
        script, url = start_ui("--token", f"@{path}")
        script.process.send_signal(signal.SIGINT)
        errors.append(script.wait()[2])
        assert url.endswith("a" * 32)

    assert "other users of this machine can read the token" in errors[0]
    assert f"chmod 600 {path}" in errors[0]
    assert "can read the token" not in errors[1]
