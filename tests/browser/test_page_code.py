"""Code and configuration, and their differences."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.conftest import OpenView, Site, serving
from browser.seeing import expect
from home.journals import new_trial, record, report
from masters import running_master

from core_sdk._analysis.evidence import keep_sources
from core_sdk._execution.experiments.submission import submit
from core_sdk._home import Home

_CONFIG = """\
name: NAME
entrypoint: python3 train.py
hyperparameters: {lr: LR}
searcher: {name: single, metric: loss, smaller_is_better: true, max_length: {batches: 1}}
"""


_EXPERIMENTS = (
    ("one", "0.1", {"train.py": b"a = 1\nb = 2\n", "old.py": b"old\n", "same.py": b"same\n", "data.bin": b"\0\1"}),
    ("two", "0.2", {"train.py": b"a = 1\nb = 3\n", "new.py": b"new\n", "same.py": b"same\n", "data.bin": b"\0\2"}),
)


@pytest.fixture
def two_experiments(tmp_path: Path) -> Iterator[Site]:
    """Experiments whose code differs in a file that changed, one that is new, one that is gone, and one of bytes."""
    home = Home.create(tmp_path / "home")
    with running_master(home), serving(home) as site:
        for name, lr, files in _EXPERIMENTS:
            model = tmp_path / name
            model.mkdir()
            for file, content in files.items():
                (model / file).write_bytes(content)
            text = _CONFIG.replace("NAME", name).replace("LR", lr)
            submit(home, text, source="a test", model_dir=model, is_paused=True)
        yield site


def test_a_configuration_is_shown_in_three_forms(site: Site, open_view: OpenView) -> None:
    """A configuration is shown as written, with defaults and as the difference."""
    page = open_view(site, "experiments/5/code")
    expect(page.get_by_role("region", name="Configuration")).to_contain_text("max_restarts: 0")

    page.get_by_role("button", name="As written").click()
    expect(page.get_by_role("region", name="Configuration")).to_contain_text("# How fast may it learn?")
    page.get_by_role("button", name="What the defaults add").click()

    expect(page.locator(".difference .diff-added").first).to_be_visible()


def test_trials_that_were_started_by_hand_have_no_configuration(site: Site, open_view: OpenView) -> None:
    """Trials without a configuration show their hyperparameters."""
    page = open_view(site, "trials/25/code")

    expect(page.get_by_text("No configuration.")).to_be_visible()
    expect(page.get_by_text("model.layers")).to_be_visible()
    page.get_by_role("button", name="Code", exact=True).click()
    expect(page.get_by_text("No code was kept.")).to_be_visible()


def test_files_are_shown_and_saved(two_experiments: Site, open_view: OpenView, tmp_path: Path) -> None:
    """One file or all files can be shown and saved, and a binary file is named as such."""
    page = open_view(two_experiments, "experiments/1/code?show=code&file=train.py")
    expect(page.get_by_role("region", name="train.py")).to_contain_text("b = 2")

    page.get_by_role("button", name=re.compile("data.bin")).click()
    expect(page.get_by_text("It is no text")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Save all").click()
    download.value.save_as(tmp_path / "code.tar.gz")

    with tarfile.open(tmp_path / "code.tar.gz") as archive:
        assert sorted(archive.getnames()) == ["data.bin", "old.py", "same.py", "train.py"]


def test_code_of_two_experiments_differs_in_files_and_lines(two_experiments: Site, open_view: OpenView) -> None:
    """The code of two experiments is compared by files and lines, with the keyboard."""
    page = open_view(two_experiments, "experiments/2/code?show=code")
    files = page.get_by_role("navigation", name="Files")

    page.get_by_role("textbox", name="ID of another experiment").focus()
    page.keyboard.type("1")
    page.keyboard.press("Enter")
    expect(files.get_by_role("heading")).to_have_text("4 files differ")
    expect(files.get_by_role("button")).to_have_text(["data.binchanged", "new.pynew", "old.pygone", "train.pychanged"])
    files.get_by_role("button", name="train.py").focus()
    page.keyboard.press("Enter")

    expect(page.locator(".diff-removed")).to_contain_text("b = 2")
    expect(page.locator(".diff-added")).to_contain_text("b = 3")
    page.get_by_role("button", name="Without differences").click()
    expect(files.get_by_role("heading")).to_have_text("4 files")


def test_configurations_of_two_experiments_differ_in_lines(two_experiments: Site, open_view: OpenView) -> None:
    """Configurations of two experiments are compared by lines, with equal parts folded."""
    page = open_view(two_experiments, "experiments/2/code?with=1")

    expect(page.locator(".diff-removed")).to_contain_text(["name: one", "0.1"])
    expect(page.locator(".diff-added")).to_contain_text(["name: two", "0.2"])
    assert page.locator(".diff-skipped").count() > 0


def test_trials_of_one_experiment_differ_in_their_hyperparameters(site: Site, open_view: OpenView) -> None:
    """Trials of one experiment are compared by their hyperparameters."""
    page = open_view(site, "trials/26/code?with=27")

    expect(page.locator("tr.differs", has_text="learning_rate")).to_be_visible()
    expect(page.get_by_text("They are the same.")).to_be_visible()
    page.get_by_role("button", name="Code", exact=True).click()
    expect(page.get_by_text("Their code is the same, byte for byte.")).to_be_visible()


def test_another_experiment_that_does_not_exist_says_so(site: Site, open_view: OpenView) -> None:
    """A comparison with a missing experiment shows an error."""
    page = open_view(site, "experiments/5/code?with=4711")

    expect(page.get_by_role("alert")).to_contain_text("deleted meanwhile")


def test_a_damaged_archive_says_so(two_experiments: Site, open_view: OpenView) -> None:
    """A damaged archive shows an error, and the configuration is still shown."""
    for archive in (two_experiments.home.root / "code").iterdir():
        archive.write_bytes(archive.read_bytes()[:60])
    page = open_view(two_experiments, "experiments/1/code?show=code")

    expect(page.get_by_role("alert")).to_contain_text("cannot be read")
    page.get_by_role("button", name="Configuration").click()
    expect(page.get_by_role("region", name="Configuration")).to_contain_text("name: one")


def test_a_thousand_files_are_found_by_their_names(open_view: OpenView, tmp_path: Path) -> None:
    """Thousands of files can be searched by name, and not all are listed at once."""
    model = tmp_path / "model"
    for folder in range(10):
        (model / f"part{folder}").mkdir(parents=True)
        for number in range(100):
            (model / f"part{folder}" / f"module{number}.py").write_text(f"x = {number}\n")
    home = Home.create(tmp_path / "home")
    with running_master(home), serving(home) as site:
        submit(home, _CONFIG.replace("LR", "1"), source="a test", model_dir=model, is_paused=True)
        page = open_view(site, "experiments/1/code?show=code")

        expect(page.get_by_text("And 500 more, which the search finds.")).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("part7/module42")

        expect(page.get_by_role("navigation", name="Files").get_by_role("button")).to_have_count(1)


def test_code_of_two_trials_differs_in_lines(tmp_path: Path, open_view: OpenView) -> None:
    """The sources of any two chosen trials are compared, and what stands in them is text."""
    home = Home.create(tmp_path / "home")
    for number, line in enumerate(("a = 1", "a = 2", "<img src=x onerror=\"document.title = 'hacked'\">"), start=1):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / "train.py").write_text(f"{line}\nb = 1\n")
        (directory / "<b>.py").write_text(f"{number % 2}\n")
        folder = new_trial(home)
        assert keep_sources(folder, directory) == ""
        record(folder, report(1, loss=0.5))
    record(new_trial(home), report(1, loss=0.5))
    with serving(home) as site:
        page = open_view(site, "compare?trials=1,2,3,4")

        page.get_by_role("link", name="Code", exact=True).click()
        expect(page.get_by_text("no sources of trial 4 were kept")).to_be_visible()
        page.get_by_label("to", exact=True).select_option("3")

        expect(page.locator(".diff-removed")).to_contain_text("a = 1")
        expect(page.locator(".diff-added")).to_contain_text("onerror")
        page.get_by_label("From", exact=True).select_option("2")
        expect(page.get_by_role("navigation", name="Files").get_by_role("button")).to_have_text(["<b>.py", "train.py"])
        page.goto(site.address("trials/2/code?show=code&with=1"))
        expect(page.get_by_role("heading", name="2 files differ")).to_be_visible()
