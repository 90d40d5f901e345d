"""Whether people who do not see, or have no mouse, or a narrow window, can use each view."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser.conftest import OpenView, Site
from browser.seeing import expect

AXE = (Path(__file__).with_name("axe") / "axe.min.js").read_text()

VIEWS = [
    "runs", "runs?kind=experiments", "runs?group=state,optimizer", "runs?where=lr <", "trials/25", "trials/25/overview",
    "trials/25/media", "trials/25/media?replaced=1&step=500", "compare/media?trials=23,25", "trials/25/system",
    "trials/25/logs?line=3", "trials/25/checkpoints?checkpoint=c00025-001200", "trials/25/code",
    "experiments/2", "experiments/5/search", "experiments/5/curves", "experiments/5/hyperparameters",
    "experiments/5/hyperparameters?picture=heat", "experiments/5/hyperparameters?picture=importance",
    "experiments/5/code?form=difference", "compare?trials=23,25", "compare/values?trials=23,25", "night", "queue",
    "trials/4711",
    "compare/scatter?trials=22,23,25", "compare/code?trials=23,25",
    "compare?trials=1,2,3,4&group=optimizer", "experiments/2/curves?group=optimizer,label&band=range",
    "models", "models/1", "models/1/1",
    "runs?view=charts&colour=lr", "runs?view=charts&colour=state&eyes=none,3,4",
]  # fmt: skip


@pytest.mark.timeout(600)  # the checker takes seconds for each view
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_checker_finds_no_fault_in_any_view(site: Site, open_view: OpenView, theme: str) -> None:
    """axe finds no serious fault by WCAG 2.2 AA in any view or theme."""
    page = open_view(site, VIEWS[0], theme=theme)
    expect(page.locator(".grid-row").first).to_be_visible()
    page.evaluate(AXE)

    faults: dict[str, list[tuple[str, str, list[str]]]] = {}
    for view in VIEWS:
        page.evaluate("view => { location.hash = '#/nowhere'; location.hash = `#/${view}`; }", view)
        expect(page.locator(".view")).to_be_visible()
        page.wait_for_function("() => !document.querySelector('.loading, [aria-busy=true]')")
        found = page.evaluate(
            "() => axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] })"
        )
        serious = [
            (fault["id"], fault["help"], [node["html"][:160] for node in fault["nodes"][:3]])
            for fault in found["violations"]
            if fault["impact"] in ("serious", "critical")
        ]
        faults |= {view: serious} if serious else {}

    assert faults == {}


@pytest.mark.parametrize("view", [*VIEWS, "experiments/4711", "trials/x", "compare", "compare?trials=4711", "nowhere"])
def test_every_view_has_a_head(site: Site, open_view: OpenView, view: str) -> None:
    """Every view has exactly one h1, also a view of something that does not exist."""
    page = open_view(site, view)
    page.wait_for_function("() => document.querySelector('main h1') && !document.querySelector('.loading')")

    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator("h1")).not_to_be_empty()


@pytest.mark.parametrize(
    "view",
    [
        "runs",
        "trials/25",
        "trials/25/logs",
        "experiments/5/search",
        "experiments/5/hyperparameters",
        "queue",
        "models/1/1",
        "runs?view=charts",
    ],
)
def test_a_narrow_window_needs_no_scrolling_sideways(site: Site, open_view: OpenView, view: str) -> None:
    """A narrow window needs no sideways scrolling of the page."""
    page = open_view(site, view, size=(390, 800))
    page.wait_for_function("() => !document.querySelector('.loading, [aria-busy=true]')")

    width = page.evaluate("() => Math.max(document.body.scrollWidth, document.querySelector('main').scrollWidth)")

    assert width <= 390


def test_the_theme_follows_the_system_until_it_is_chosen(own_site: Site, open_view: OpenView) -> None:
    """The theme follows the system until one is chosen, and the choice survives a reload."""
    page = open_view(own_site, "runs", theme="dark")
    expect(page.locator("html[data-theme=dark]")).to_be_attached()

    page.get_by_role("button", name="Theme: system").click()
    expect(page.locator("html[data-theme=light]")).to_be_attached()
    page.reload()

    expect(page.locator("html[data-theme=light]")).to_be_attached()


def test_the_first_key_skips_to_the_content(site: Site, open_view: OpenView) -> None:
    """The first Tab key offers a link that skips to the content."""
    page = open_view(site, "runs")
    expect(page.locator("main")).to_be_visible()

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")

    expect(page.locator("main")).to_be_focused()
