"""The page in Firefox: what the pointer and the keys do there is what they do in Chromium."""

from __future__ import annotations

import pytest
from browser import test_page_charts, test_page_workspace
from browser.conftest import OpenView, Site
from browser.seeing import expect, rows
from browser.test_page_accessibility import VIEWS

straight = test_page_charts.straight
sweep = test_page_workspace.sweep


def test_every_view_opens(site: Site, open_in_firefox: OpenView) -> None:
    """Every view opens in Firefox without an error."""
    page = open_in_firefox(site, VIEWS[0])
    for view in VIEWS[1:]:
        page.goto(site.address(view))
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator(".loading")).to_have_count(0)


@pytest.mark.parametrize("view", ["trials/1", "compare?trials=1,2"])
def test_the_readout_follows_the_pointer(straight: Site, open_in_firefox: OpenView, view: str) -> None:
    """In Firefox the readout follows the pointer."""
    test_page_charts.test_the_readout_follows_the_pointer(straight, open_in_firefox, view, "height")


@pytest.mark.parametrize("view", ["trials/1", "compare?trials=1,2"])
def test_a_drag_zooms_where_it_was_made(straight: Site, open_in_firefox: OpenView, view: str) -> None:
    """In Firefox dragging zooms to the dragged range."""
    test_page_charts.test_a_drag_zooms_where_it_was_made(straight, open_in_firefox, view)


def test_curves_have_eyes_and_stand_out(sweep: Site, open_in_firefox: OpenView) -> None:
    """In Firefox curves can be hidden and highlighted."""
    test_page_workspace.test_an_eye_shows_and_hides_the_curve_of_a_trial(sweep, open_in_firefox)
    test_page_workspace.test_a_curve_stands_out_wherever_it_is_pointed_at(sweep, open_in_firefox)


def test_keys_move_through_a_table(sweep: Site, open_in_firefox: OpenView) -> None:
    """In Firefox arrow keys choose a row and Enter opens it."""
    page = open_in_firefox(sweep, "runs")
    expect(rows(page)).to_have_count(3)

    page.get_by_role("grid").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", level=1)).to_contain_text("2")
