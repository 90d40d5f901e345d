"""The page over the homes of several people."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.conftest import OpenView, Site, serving
from browser.seeing import expect, rows
from home.journals import new_trial, record, report, stored
from parts import needs

from core_sdk._home import Home
from core_sdk._home.folders.gathering import gathered_home


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Serves two homes: trial 1 is in one's own, and trial 2 in that of another user."""
    monkeypatch.setenv("CORE_SDK_HOME", str(tmp_path / "own"))
    for number, name in enumerate(("ada", "bob"), start=1):
        folder = new_trial(Home(tmp_path / "lab" / name), lr=0.1 * number)
        record(folder, report(1, loss=0.5), stored(f"{name}-1", 1))
        os.utime(folder.path, (number, number))
    os.chown(tmp_path / "lab" / "bob", 61002, -1)
    with serving(gathered_home([str(tmp_path / "lab" / "*")])) as site:
        yield site


@needs("other users")
def test_only_trials_of_ones_own_have_buttons(site: Site, open_view: OpenView) -> None:
    """One's own trial is labelled, and its notes can be edited; the trial of somebody else can only be read."""
    page = open_view(site, "trials/1/overview")
    actions = page.locator(".subject-actions")
    expect(page.get_by_role("button", name="Edit")).to_be_visible()

    actions.get_by_role("button", name="Label …").click()
    page.get_by_label("New labels").fill("paper")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator(".subject-name .chip")).to_have_text("paper")

    page.goto(site.address("trials/2/overview"))
    expect(page.locator("h1")).to_have_text("Trial 2")
    expect(actions).to_have_text("This page can only read what belongs to others.")
    expect(page.get_by_role("button", name="Edit")).to_have_count(0)


@needs("other users")
def test_of_chosen_rows_only_ones_own_are_changed(site: Site, open_view: OpenView) -> None:
    """An action on rows of several homes is done to those of one's own."""
    page = open_view(site, "runs?columns=id,label")
    chosen = page.get_by_role("toolbar", name="Chosen rows")
    expect(rows(page)).to_have_count(2)
    for number in (1, 2):
        page.get_by_label(f"Choose {number}", exact=True).check()

    chosen.get_by_role("button", name="Archive", exact=True).click()

    expect(rows(page)).to_have_count(1)
    expect(page.locator(".toast")).to_contain_text("archived trial 1")
    lab = Path(site.home.location).parent
    assert (lab / "ada" / "runs" / "1" / "changes.journal").exists()
    assert not (lab / "bob" / "runs" / "1" / "changes.journal").exists()


@needs("other users")
def test_checkpoints_of_ones_own_are_pinned(site: Site, open_view: OpenView) -> None:
    """A checkpoint has buttons where its trial has them."""
    page = open_view(site, "trials/1/checkpoints")
    page.get_by_role("button", name="ada-1").click()
    page.locator(".details").get_by_role("button", name="Pin …").click()
    page.get_by_role("button", name="Pin checkpoint").click()
    expect(page.locator("tr .chip")).to_contain_text("pinned")

    page.goto(site.address("trials/2/checkpoints"))
    page.get_by_role("button", name="bob-1").click()
    expect(page.locator(".details .subject-actions")).to_have_text("This page can only read what belongs to others.")
