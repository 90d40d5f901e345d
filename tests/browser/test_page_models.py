"""The model registry on the page."""

from __future__ import annotations

import msgspec
from browser.conftest import OpenView, Site
from browser.seeing import expect
from home.journals import append, lines, new_trial, report, started, stored

from core_sdk._home.registry import Registry


def test_a_checkpoint_is_registered_and_looked_at(own_site: Site, open_view: OpenView) -> None:
    """A checkpoint can be registered, shown as a model version and unregistered."""
    trial = new_trial(own_site.home, "continued")
    begun = msgspec.structs.replace(started(trial), latest_checkpoint="c00025-001200")
    append(trial, 1, lines(begun, report(9, "validation", accuracy=0.75), stored("continued", 9)))
    page = open_view(own_site, f"trials/{trial.trial_id}/checkpoints?checkpoint=continued")
    page.get_by_role("button", name="Register …").first.click()
    page.get_by_label("Name of the model").fill("reader")
    page.get_by_role("button", name="Register checkpoint").click()
    expect(page.locator(".toast").last).to_contain_text("version 1")
    page.get_by_role("link", name="Models").click()
    page.get_by_role("link", name="reader", exact=True).click()
    expect(page.get_by_role("row").last).to_contain_text("0.75")
    page.get_by_role("link", name="version 1").click()

    way = page.get_by_role("list", name="The attempts that led to it").get_by_role("listitem")

    expect(way).to_have_count(2)
    expect(way.first).to_contain_text("long warm-up")
    expect(way.first).to_contain_text("commit 8c1f0e2d4b5a")
    expect(way.last).to_contain_text("steps 0 to 9")
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Notes in Markdown").fill("Good *enough*.")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".markdown em")).to_have_text("enough")
    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("button", name="Delete version").click()
    expect(page.get_by_role("heading", name="reader", exact=True)).to_be_visible()
    expect(page.get_by_text("No versions.")).to_be_visible()
    assert [(model.name, model.versions) for model in Registry(own_site.home).models()][-1] == ("reader", [])


def test_a_model_is_made_described_and_archived(own_site: Site, open_view: OpenView) -> None:
    """A model can be created, archived and deleted."""
    page = open_view(own_site, "models")
    page.get_by_role("button", name="New model …").click()
    page.get_by_label("Name of the model").fill("日本語")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="日本語").click()
    page.get_by_role("button", name="Archive").click()
    expect(page.locator(".chip").get_by_text("archived")).to_be_visible()

    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("button", name="Delete model").click()

    expect(page.get_by_role("heading", name="Models")).to_be_visible()
    expect(page.get_by_role("link", name="日本語")).to_have_count(0)
