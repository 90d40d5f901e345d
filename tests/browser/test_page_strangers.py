"""What web pages of others can do to somebody who has the page open: nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from browser.conftest import CHROMIUM, OPTIONS, Site

from core_sdk._home import open_view

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

_ASK = """async ({ address, options }) => {
    try {
        const response = await fetch(address, options);
        return [response.type === 'opaque' ? 'opaque' : response.status, await response.text()];
    } catch (error) {
        return ['blocked', ''];
    }
}"""
_ACTION = {"method": "POST", "headers": {"X-Core-SDK-Action": "1", "Content-Type": "application/json"}, "body": "{}"}
_FORM = {"method": "POST", "mode": "no-cors", "credentials": "include", "body": "{}"}


@pytest.fixture(scope="module")
def misled_browser(browser: Browser) -> Iterator[Browser]:
    """A browser for which evil.test is a name of this machine."""
    rules = "--host-resolver-rules=MAP evil.test 127.0.0.1"
    misled = browser.browser_type.launch(executable_path=CHROMIUM, args=[*OPTIONS, rules])
    yield misled
    misled.close()


@pytest.fixture
def page(misled_browser: Browser, own_site: Site) -> Iterator[Page]:
    """A page of a browser that has entered the site before."""
    context = misled_browser.new_context()
    page = context.new_page()
    page.goto(own_site.entrance)
    page.wait_for_url(f"{own_site.origin}/")
    page.wait_for_selector(".view")
    yield page
    context.close()


def _state(site: Site) -> tuple[list[int], bool, tuple[str, ...]]:
    with open_view(site.home) as view:
        trial = view.trial(24)
    return site.home.trial_ids(), trial.is_archived, trial.labels


def test_a_name_that_was_rebound_to_this_machine_is_refused(own_site: Site, page: Page) -> None:
    """The browser gives it nothing, and the server answers nothing but a refusal: not even with the token."""
    sent: list[Request] = []
    page.on("request", lambda request: sent.append(request))

    addresses = [f"http://evil.test:{own_site.port}/{path}" for path in ("", "?token=x", "api/v1/runs")]
    for address in (*addresses, own_site.entrance.replace(own_site.origin, f"http://evil.test:{own_site.port}")):
        answer = page.goto(address)

        assert answer is not None
        assert (answer.status, answer.json()["error"]["kind"]) == (403, "foreign_host")
        assert "set-cookie" not in answer.all_headers()
    assert not [request for request in sent if {"cookie", "authorization"} & request.all_headers().keys()]


def test_a_page_of_a_rebound_name_can_neither_read_nor_act(own_site: Site, page: Page) -> None:
    """A page of a rebound name can neither read nor act."""
    before = _state(own_site)
    evil = f"http://evil.test:{own_site.port}"
    page.goto(f"{evil}/attack")  # a document of this origin, although it is only a refusal

    def ask(path: str, options: dict[str, Any]) -> list[Any]:
        found: list[Any] = page.evaluate(_ASK, {"address": f"{evil}/api/v1/{path}", "options": options})
        return found

    reading = [ask(path, {}) for path in ("home", "runs", "trials/24/logs", "openapi.json", "events")]
    acting = [ask(f"trials/24/actions/{action}", _ACTION) for action in ("archive", "resume", "kill", "delete")]

    assert [status for status, _ in (*reading, *acting)] == [403] * 9
    assert all("foreign_host" in text for _, text in (*reading, *acting))
    assert _state(own_site) == before


def test_a_page_of_another_site_can_neither_read_nor_act(own_site: Site, page: Page) -> None:
    """A page of another site can neither read nor act, by requests, forms or frames."""
    before = _state(own_site)
    target = own_site.origin
    form = f"<form method=post action='{target}/api/v1/trials/24/actions/delete'><button>win</button></form>"
    frame = f"<iframe src='{target}/#/trials/24'></iframe>"
    page.route(
        "http://evil.test/attack",
        lambda route: route.fulfill(body=f"<!doctype html>{form}{frame}", content_type="text/html"),
    )
    page.goto("http://evil.test/attack")

    def ask(path: str, options: dict[str, Any]) -> list[Any]:
        found: list[Any] = page.evaluate(_ASK, {"address": f"{target}/api/v1/{path}", "options": options})
        return found

    read = ask("runs", {"credentials": "include"})
    acted = ask("trials/24/actions/archive", _ACTION | {"credentials": "include"})
    unread = ask("trials/24/actions/delete", _FORM)
    framed = page.frames[1].evaluate("() => document.querySelector('.view') !== null")
    with page.expect_navigation() as submitted:
        page.get_by_role("button", name="win").click()

    assert (read, acted) == (["blocked", ""], ["blocked", ""])
    assert unread in (["opaque", ""], ["blocked", ""])
    assert framed is False
    assert submitted.value.status in (401, 403)
    assert _state(own_site) == before
