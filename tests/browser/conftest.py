"""A browser, and servers of homes for it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser.sample_home import write_sample_home
from browser.sample_search import run_search
from browser.seeing import PATIENCE_MS

from core_sdk._home import Home
from core_sdk._interfaces.server.serving import Address, listen, make_server
from core_sdk._interfaces.server.shared_view import SharedView

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright

# Chromium without its own windows and menus, which take most of a test's time, and without a history.
CHROMIUM = "/usr/bin/chromium-headless-shell"
CHROMIUM_WITH_WINDOWS = "/usr/bin/chromium"
FIREFOX = "/usr/bin/firefox-esr"
OPTIONS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
_TOKEN = "tokenofthetests0123456789abcdefghij"
_NAME = "0123456789abcdef.localhost"


@dataclass(frozen=True)
class Site:
    """A home and its server."""

    home: Home
    port: int

    @property
    def origin(self) -> str:
        return f"http://{_NAME}:{self.port}"

    @property
    def entrance(self) -> str:
        return f"{self.origin}/#token={_TOKEN}"

    def address(self, view: str) -> str:
        return f"{self.origin}/#/{view}"


OpenView = Callable[..., "Page"]
"""Opens a view of a site; its words are the same as in a link, such as `trials/3/logs?rank=0`."""


@contextmanager
def serving(home: Home, *, can_act: bool = True) -> Iterator[Site]:
    with ExitStack() as stack:
        listening = [stack.enter_context(each) for each in listen("127.0.0.1", 0)]
        shared = stack.enter_context(SharedView(home, can_act=can_act))
        port = listening[0].getsockname()[1]
        server = make_server(shared, Address("127.0.0.1", port, _TOKEN, _NAME))
        thread = threading.Thread(target=server.run, kwargs={"sockets": listening})
        thread.start()
        try:
            yield Site(home, port)
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
    yield chromium
    chromium.close()


@pytest.fixture(scope="session")
def firefox(playwright: Playwright) -> Iterator[Browser]:
    """Debian's Firefox, controlled by Playwright through WebDriver BiDi."""
    browser = playwright.firefox.launch(channel="moz-firefox", executable_path=FIREFOX)
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def sample_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with many kinds of trials, of which 25 has three attempts; experiment 5 is a search. Read only."""
    directory = tmp_path_factory.mktemp("page")
    home = write_sample_home(directory / "home")
    run_search(home.root, directory / "search")
    return home


@pytest.fixture(scope="session")
def site(sample_home: Home) -> Iterator[Site]:
    with serving(sample_home) as site:
        yield site


@pytest.fixture
def own_site(sample_home: Home, tmp_path: Path) -> Iterator[Site]:
    """Serves a copy of the sample home that the test may change."""
    shutil.copytree(sample_home.root, tmp_path / "own")
    with serving(Home.open(tmp_path / "own")) as site:
        yield site


@pytest.fixture
def open_view(browser: Browser) -> Iterator[OpenView]:
    with opening(browser) as open_view:
        yield open_view


@pytest.fixture
def open_in_firefox(firefox: Browser) -> Iterator[OpenView]:
    with opening(firefox) as open_view:
        yield open_view


_opened: list[Page] = []
"""The pages of the present test."""


@contextmanager
def opening(browser: Browser) -> Iterator[OpenView]:
    """Opens views and checks at the end that none had an error or contacted another server."""
    complaints: list[str] = []
    pages: list[Page] = []

    def complain(message: ConsoleMessage) -> None:
        # An answer with a status beyond 399 is not a mistake of the page: it shows what the server says.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            complaints.append(message.text)

    def open_view(site: Site, view: str, *, theme: str = "light", size: tuple[int, int] = (1440, 900)) -> Page:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if theme == "dark" else "light",
            accept_downloads=True,
        )
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", complain)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: _check_origin(request.url, site, complaints))
        _opened.append(page)
        page.goto(site.entrance)
        page.wait_for_url(f"{site.origin}/", wait_until="load")
        page.goto(site.address(view))
        pages.append(page)
        return page

    yield open_view
    titles = [page.title() for page in pages if not page.is_closed()]
    for page in pages:
        _opened.remove(page)
        page.context.close()
    assert complaints == []
    assert "hacked" not in titles


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds to the report of a failed test what its pages show."""
    report = yield
    if report.when == "call" and report.failed:
        for page in _opened:
            with suppress(Exception):  # the browser may have died
                report.sections.append((f"page {page.url}", page.locator("body").inner_text(timeout=1000)))
    return report


def _check_origin(url: str, site: Site, complaints: list[str]) -> None:
    if not url.startswith((f"{site.origin}/", "blob:", "data:")):
        complaints.append(f"the page asked {url}")
