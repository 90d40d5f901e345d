"""The documentation as a site: no link is broken, each public name is there, and a search finds what it should."""

from __future__ import annotations

import importlib
import re
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser.conftest import CHROMIUM, OPTIONS
from parts import needs
from processes import wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page, Playwright

DOCS = Path(__file__).resolve().parent.parent / "docs"
TIMEOUT_MS = 60_000

sys.path.append(str(DOCS))
import page_splitting  # noqa: E402 - a program beside the pages
import site_pages  # noqa: E402

SEARCHES = {
    "resume on slurm": "schedulers",
    "second gpu": "distributed/",
    "another learning rate after a resume": "exact-resume-go-on-with-another-learning-rate/",
    "seeds as one curve": "groups-seeds-as-one-curve/",
    "power cut": "what-is-promised",
}
"""What a stranger types, and the page that answers it."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which the site was built; a link to a page or a heading that does not exist is an error."""
    directory = tmp_path_factory.mktemp("built")
    site_pages.build(directory)
    return directory


def test_a_long_document_is_several_pages() -> None:
    """Each section is a page, a short one stays with the one before, and links find their place."""
    long = "word " * 400
    text = (
        f"# Stops\n\nBegin with [soon](#how-soon).\n\n## How soon\n\n{long}\n### In a call\n\nSee [who](#who).\n"
        f"## Short\n\nfew\n```sh\n## no heading\n```\n## Who\n\n{long}\n### In a call\n"
    )

    pages = page_splitting.divide("stop.md", text)
    moved = page_splitting.anchors("stop.md", text, pages)

    assert [page.name for page in pages] == ["stop.md", "stop-how-soon.md", "stop-who.md"]
    assert [page.title for page in pages] == ["Stops", "How soon", "Who"]
    assert pages[0].text.endswith("- [How soon](stop-how-soon.md)\n- [Who](stop-who.md)\n")
    assert "\n## In a call" in pages[1].text
    assert "\n## Short" in pages[1].text
    assert "\n## no heading" in pages[1].text
    assert moved == {
        "stop.md#stops": "stop.md",
        "stop.md#how-soon": "stop-how-soon.md",
        "stop.md#in-a-call": "stop-how-soon.md#in-a-call",
        "stop.md#short": "stop-how-soon.md#short",
        "stop.md#who": "stop-who.md",
        "stop.md#in-a-call_1": "stop-who.md#in-a-call",
    }
    assert page_splitting.with_moved_links("[a](#who), [b](stop.md#short), [c](other.md#x)", "stop.md", moved) == (
        "[a](stop-who.md), [b](stop-how-soon.md#short), [c](other.md#x)"
    )
    assert page_splitting.divide("stop.md", "# Short\n\n## One\n") == [
        page_splitting.SitePage("stop.md", "# Short\n\n## One\n")
    ]


@needs("site")
def test_a_page_is_read_in_three_minutes(built: Path) -> None:
    """Pages that one reads through have few words; those in which one looks things up may be long."""
    looked_up = {"index", "moving-from-determined-what-is-different", "ui-beside-other-pages", *site_pages.LOOKED_UP}

    words = {path.stem: page_splitting.num_words(path.read_text()) for path in (built / "pages").glob("*.md")}

    long = {name for name, number in words.items() if number > 1.1 * page_splitting.MOST_WORDS}
    assert {name for name in long if not name.startswith("reference-")} <= looked_up
    assert len(words) > 100


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def open_page(built: Path, playwright: Playwright) -> Iterator[Page]:
    """The first page of a site with two published versions, in a browser."""
    published = built / "published"
    published.mkdir(exist_ok=True)
    for version in ("0.2.0rc1", "0.10.1", "0.2.0"):
        site_pages.publish(built / "site", published, version)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(published))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS) as browser:
            page = browser.new_page(viewport={"width": 1300, "height": 900})
            page.set_default_timeout(TIMEOUT_MS)
            page.goto(f"http://127.0.0.1:{server.server_port}/")
            page.wait_for_url("**/0.10/")
            yield page
        server.shutdown()


@needs("site")
@pytest.mark.parametrize("package", site_pages.PACKAGES)
def test_each_public_name_has_a_section(built: Path, package: str) -> None:
    """The reference of a package has a heading for each of its public names."""
    headings = (built / "pages" / site_pages.reference_name(package)).read_text().splitlines()

    names = site_pages.exported(importlib.import_module(package))
    assert names
    assert [name for name in names if f"## `{name}`" not in headings] == []


@needs("site")
def test_each_command_has_its_options(built: Path) -> None:
    """The reference of commands has groups, commands and options, and no hidden ones."""
    text = (built / "pages" / "reference-commands.md").read_text()

    assert "## core-sdk run\n" in text
    assert "### core-sdk trial list\n" in text
    assert "`--hparam NAME=VALUE`" in text
    assert "experiment checkpoints" not in text


@needs("site", "browser")
def test_a_search_answers_in_its_first_three_results(open_page: Page) -> None:
    """What a stranger asks is answered by one of the first three results."""
    search = open_page.get_by_role("button", name="Search").first
    search.click()
    for typed, wanted in SEARCHES.items():
        open_page.keyboard.press("Control+A")
        open_page.keyboard.type(typed)
        wait_for(partial(answers, open_page, wanted))


def answers(page: Page, wanted: str) -> bool:
    """Returns whether one of the first three results leads to the page, with the words to highlight in its address."""
    links = page.locator("a[href*='?h=']").all()[:3]
    return any(wanted in re.sub(r"\?h=[^#]*", "", str(link.get_attribute("href"))) for link in links)


@needs("site", "browser")
def test_versions_stand_side_by_side(open_page: Page) -> None:
    """The newest minor version is shown first, and all of them can be chosen."""
    links = open_page.locator(".md-version__link")
    links.nth(1).wait_for(state="attached")

    assert [str(text).strip() for text in links.all_text_contents()] == ["0.10", "0.2"]
