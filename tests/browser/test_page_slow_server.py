"""A slow server: an answer is shown under its own question only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from browser.conftest import OpenView, Site
from browser.seeing import expect, open_settings, rows

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route


@contextmanager
def held(page: Page, part: str) -> Iterator[None]:
    """Keeps the questions whose address has this part from being answered, until the block ends."""
    kept: list[Route] = []
    is_over = False

    def keep(route: Route) -> None:
        if is_over:
            route.continue_()
        else:
            kept.append(route)

    page.route(api(part), keep)
    yield
    is_over = True
    for route in kept:
        route.continue_()


def api(part: str) -> str:
    return f"**/api/v1/{part}"


def charts(page: Page) -> Locator:
    return page.locator(".chart")


def go(view: str) -> Callable[[Page], None]:
    return lambda page: page.evaluate("view => { location.hash = '#/' + view; }", view)


def choose(label: str, value: str) -> Callable[[Page], None]:
    def choose_in(page: Page) -> None:
        if label == "Curves":
            open_settings(page)
        page.get_by_label(label, exact=True).select_option(value)

    return choose_in


def click(name: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role("button", name=name, exact=True).click()


@pytest.mark.parametrize(
    ("view", "shown", "question", "change"),
    [
        ("compare?trials=1,2,3", ".chart", "runs**", go("compare?trials=4,5")),
        ("compare?trials=1,2,3", ".chart", "comparison/metrics**", go("compare?trials=4,5")),
        ("compare?trials=1,2,3", ".chart", "comparison/metrics**", click("Time")),
        ("trials/25", ".chart", "comparison/metrics**", click("Time")),
        ("experiments/5/curves", ".chart", "comparison/metrics**", choose("Curves", "1")),
        ("compare/configuration?trials=1,2,3", ".difference", "trials/*/configuration", choose("From", "2")),
        ("trials/25/logs?attempt=1", ".log-line", "trials/25/logs**", choose("Attempt", "2")),
        ("trials/25/logs?attempt=1&level=ERROR", ".log-line", "trials/25/logs**", choose("Level", "WARNING")),
        ("experiments/5/hyperparameters", ".coordinate", "runs**", choose("Metric", "training.loss")),
        ("trials/1/code?with=2", ".plain-table", "trials/3", go("trials/1/code?with=3")),
    ],
)  # fmt: skip
def test_an_old_answer_is_gone_while_another_one_loads(
    site: Site, open_view: OpenView, view: str, shown: str, question: str, change: Callable[[Page], None]
) -> None:
    """While another answer loads, the old one is not shown, and nothing says that there is no data."""
    page = open_view(site, view)
    expect(page.locator(shown).first).to_be_visible()

    with held(page, question):
        with page.expect_request(api(question)):
            change(page)
        expect(page.locator(".loading").first).to_be_visible()
        assert page.locator(shown).count() == 0
        assert page.locator("main .empty").count() == 0
    expect(page.locator(shown).first).to_be_visible()


def test_an_old_answer_does_not_come_back_with_a_failure(site: Site, open_view: OpenView) -> None:
    """A failed request does not show the curves of the previous trials."""
    page = open_view(site, "compare?trials=1,2,3")
    expect(charts(page).first).to_be_visible()

    page.route("**/api/v1/runs**", lambda route: route.abort())
    go("compare?trials=4,5")(page)

    expect(page.locator(".failure")).to_be_visible()
    assert charts(page).count() == 0


def test_the_rows_of_a_former_filter_are_marked(site: Site, open_view: OpenView) -> None:
    """The table stays where it is while one writes, and does not give the former number of trials as the new one."""
    page = open_view(site, "runs")
    grid = page.get_by_role("grid")
    expect(grid).to_have_attribute("aria-busy", "false")

    with held(page, "runs**"):
        page.get_by_label("Filter").fill("id < 3")
        expect(grid).to_have_attribute("aria-busy", "true")
        expect(page.get_by_role("status").filter(has_text="loading")).to_be_visible()
    expect(grid).to_have_attribute("aria-busy", "false")
    expect(page.get_by_role("status").filter(has_text="2 trials")).to_be_visible()


def test_a_zoom_keeps_the_curves_until_finer_ones_are_there(site: Site, open_view: OpenView) -> None:
    """While a zoom loads finer curves, the old ones stay."""
    page = open_view(site, "trials/25")
    plot = page.locator(".chart-plot").first
    plot.focus()
    expect(page.locator(".loading")).to_have_count(0)

    with held(page, "comparison/metrics**"):
        page.keyboard.press("+")
        expect(page.get_by_role("button", name="Show all").first).to_be_visible()
        assert page.locator(".loading").count() == 0


def test_a_question_is_asked_again_that_a_server_with_too_many_connections_refused(
    site: Site, open_view: OpenView
) -> None:
    """When a server with too many connections refuses a request (503), the page repeats it and shows no failure."""
    page = open_view(site, "queue")
    page.route(api("runs**"), lambda route: route.fulfill(status=503, body="Service Unavailable"), times=1)

    go("runs")(page)

    expect(rows(page).first).to_be_visible()
    expect(page.locator(".failure")).to_have_count(0)


def test_a_home_that_was_moved_is_named_until_it_is_back(own_site: Site, open_view: OpenView) -> None:
    """A home that was moved away is named until it is back."""
    page = open_view(own_site, "runs")
    expect(rows(page).first).to_be_visible()
    root = own_site.home.root

    root.rename(root.with_name("elsewhere"))
    expect(page.locator(".failure").first).to_contain_text(f"the home {root} is not there any more")
    root.with_name("elsewhere").rename(root)

    expect(page.locator(".failure")).to_have_count(0)
    expect(rows(page).first).to_be_visible()
