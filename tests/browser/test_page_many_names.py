"""Very many metrics: every view knows those of its trials, and finds any of them by a regular expression."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser.conftest import OpenView, Site, serving
from browser.seeing import expect
from home.journals import new_trial, record, report

from core_sdk._home import Home

NUM_LAYERS = 1500


@pytest.fixture
def projects(tmp_path: Path) -> Iterator[Site]:
    """Trial 1 has 1,500 metrics, trials 2 and 3 of another project have two."""
    home = Home.create(tmp_path / "home")
    wide, *others = new_trial(home, "wide"), new_trial(home, "small"), new_trial(home, "small")
    layers: dict[str, Any] = {f"layer{index}.norm": 1.0 for index in range(NUM_LAYERS)}
    record(wide, report(1, **layers))
    for folder in others:
        record(folder, report(1, zeta=1.0, eta=2.0))
    with serving(home) as site:
        yield site


@pytest.mark.parametrize("view", ["trials/1", "runs?view=charts"])
def test_a_regular_expression_finds_every_metric(projects: Site, open_view: OpenView, view: str) -> None:
    """Charts are those of the first 1,000 until somebody looks for others, which is said."""
    page = open_view(projects, view)

    expect(page.get_by_role("note")).to_have_text(re.compile("^There are charts of the first 1,000 of 1,50"))
    page.get_by_label("Find a metric").fill(r"^training\.layer149[89]\.|zeta$")

    names = ["training.layer1498.norm", "training.layer1499.norm"]
    if view != "trials/1":
        names.insert(0, "training.zeta")
    expect(page.locator(".chart-title")).to_have_text(names)
    expect(page.get_by_role("note")).to_have_count(0)


def test_charts_are_those_of_the_trials_of_the_list(projects: Site, open_view: OpenView) -> None:
    """The metrics of other projects have no empty frames there."""
    page = open_view(projects, 'runs?view=charts&where=experiment="small"')

    expect(page.locator(".chart-title")).to_have_text(["training.zeta", "training.eta"])


def test_a_chart_is_made_of_any_metric(projects: Site, open_view: OpenView) -> None:
    """The window of a chart looks through all metrics."""
    page = open_view(projects, "trials/1")

    page.get_by_role("button", name="Add chart").click()
    page.get_by_label("Metrics by regular expression").fill(r"layer149\d")

    expect(page.get_by_role("dialog").get_by_role("status").first).to_have_text("10 of 1500")
