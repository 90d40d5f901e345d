"""The checkpoints of a trial and of an experiment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.conftest import OpenView, Site, serving
from browser.sample_home import HOSTILE, write_sample_home
from browser.seeing import expect


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[Site]:
    """No copy: its records would name the storage of the home that all tests share."""
    with serving(write_sample_home(tmp_path / "own")) as site:
        yield site


def test_the_policy_is_told_in_words(site: Site, open_view: OpenView) -> None:
    """The retention policy is described in words, with its metric and each checkpoint's verdict."""
    page = open_view(site, "experiments/2/checkpoints")

    expect(page.get_by_text("The policy keeps the best 1 of the experiment")).to_contain_text("the smallest loss")
    expect(page.get_by_role("row", name=re.compile("c00025-000600"))).to_contain_text("not kept")
    expect(page.get_by_role("row", name=re.compile("c00025-001200"))).to_contain_text("latest 1 of trial 25")


def test_an_experiment_without_a_policy_keeps_all(site: Site, open_view: OpenView) -> None:
    """Without a policy the view says that everything is kept and has no column for it."""
    page = open_view(site, "experiments/1/checkpoints")

    expect(page.get_by_text("No policy: every checkpoint is kept.")).to_be_visible()
    expect(page.get_by_role("columnheader", name="Collection")).to_have_count(0)


def test_a_checkpoint_shows_its_files_and_metadata(site: Site, open_view: OpenView) -> None:
    """A link opens a checkpoint's files and metadata, and hostile names are shown as text."""
    page = open_view(site, "trials/25/checkpoints?checkpoint=c00025-001200")
    details = page.locator(".details")

    expect(details.get_by_role("link", name="model.pt")).to_be_visible()
    expect(details).to_contain_text("core-sdk checkpoint download c00025-001200")
    expect(details).to_contain_text(HOSTILE)


def test_a_file_of_a_checkpoint_is_downloaded(site: Site, open_view: OpenView, tmp_path: Path) -> None:
    """A checkpoint's file can be downloaded unchanged."""
    page = open_view(site, "trials/25/checkpoints?checkpoint=c00025-001200")

    with page.expect_download() as download:
        page.get_by_role("link", name="model.pt").click()
    download.value.save_as(tmp_path / "model.pt")

    assert (tmp_path / "model.pt").read_bytes() == bytes(40_000)


def test_what_the_policy_does_not_keep_is_deleted(own_site: Site, open_view: OpenView) -> None:
    """Checkpoints that the policy does not keep can be deleted after a question with their ids."""
    page = open_view(own_site, "trials/25/checkpoints")

    page.get_by_role("button", name="Choose the 3 checkpoints that it does not keep").click()
    page.get_by_role("toolbar", name="Chosen rows").get_by_role("button", name="Delete …").click()
    expect(page.get_by_role("dialog")).to_contain_text("c00025-000900, c00025-000600, c00025-000300")
    page.get_by_role("button", name="Delete checkpoints").click()

    expect(page.locator(".toast").last).to_contain_text("3 checkpoints: deleted.")
    expect(page.get_by_text("1 checkpoint 117 KiB")).to_be_visible()
    page.get_by_label("Deleted ones too").check()
    expect(page.get_by_role("row", name=re.compile("c00025-000300"))).to_contain_text("Deleted")


def test_a_pin_says_why_and_holds_until_it_is_forced(own_site: Site, open_view: OpenView) -> None:
    """A pinned checkpoint shows its reason and is deleted only by force."""
    page = open_view(own_site, "trials/25/checkpoints?checkpoint=c00025-000600")
    details = page.locator(".details")
    row = page.get_by_role("row", name=re.compile("c00025-000600")).first

    details.get_by_role("button", name="Pin …").click()
    page.get_by_role("textbox", name="Why they are kept").fill("for the paper")
    page.keyboard.press("Enter")
    expect(row).to_contain_text("pinned: for the paper")
    details.get_by_role("button", name="Unpin").click()
    expect(row).not_to_contain_text("pinned")
    details.get_by_role("button", name="Pin …").click()
    page.get_by_role("textbox", name="Why they are kept").fill("for the paper")
    page.get_by_role("button", name="Pin checkpoint").click()
    expect(row).to_contain_text("pinned: for the paper")
    details.get_by_role("button", name="Delete …").click()
    page.get_by_role("button", name="Delete checkpoint").click()
    expect(page.locator(".toast-failed")).to_contain_text("for the paper")
    details.get_by_role("button", name="Delete …").click()
    page.get_by_label("Also checkpoints that are pinned").check()
    page.get_by_role("button", name="Delete checkpoint").click()

    expect(row).to_have_count(0)


def test_checkpoints_are_verified_by_keys_only(site: Site, open_view: OpenView) -> None:
    """Checkpoints can be chosen and verified with the keyboard."""
    page = open_view(site, "trials/25/checkpoints")

    for name in ("c00025-000600", "c00025-000300"):
        page.get_by_role("checkbox", name=f"Choose {name}").focus()
        page.keyboard.press("Space")
    verify = page.get_by_role("toolbar", name="Chosen rows").get_by_role("button", name="Verify")
    verify.focus()
    page.keyboard.press("Enter")

    expect(page.locator(".toast").last).to_contain_text("2 checkpoints: verified")


def test_a_damaged_checkpoint_is_named(own_site: Site, open_view: OpenView) -> None:
    """Verifying a damaged checkpoint names the damaged file."""
    (own_site.home.root / "checkpoints" / "c00025-000600" / "model.pt").write_bytes(b"torn")
    page = open_view(own_site, "trials/25/checkpoints?checkpoint=c00025-000600")

    page.locator(".details").get_by_role("button", name="Verify").click()

    expect(page.locator(".toast-failed")).to_contain_text("model.pt")


def test_a_page_that_only_reads_verifies_nothing(own_site: Site, open_view: OpenView) -> None:
    """A read-only page offers no verification, but files can be downloaded."""
    with serving(own_site.home, can_act=False) as site:
        page = open_view(site, "trials/25/checkpoints?checkpoint=c00025-000600")

        expect(page.locator(".details").get_by_text("This page can only read.")).to_be_visible()
        expect(page.locator(".details").get_by_role("link", name="model.pt")).to_be_visible()


def test_a_metric_stands_beside_each_checkpoint(site: Site, open_view: OpenView) -> None:
    """Each checkpoint shows the searcher's metric or a chosen one."""
    page = open_view(site, "trials/25/checkpoints")
    row = page.get_by_role("row", name=re.compile("c00025-001200"))

    expect(page.get_by_role("columnheader", name="loss")).to_be_visible()
    expect(row).to_contain_text("1.244")
    page.get_by_label("Metric").select_option("perplexity")
    expect(page.get_by_role("columnheader", name="perplexity")).to_be_visible()
    expect(row).to_contain_text("3.47")
