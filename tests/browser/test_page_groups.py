"""Groups of trials: one curve for the seeds of each setting, in charts and in the table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.conftest import OpenView, Site, serving
from browser.seeing import expect, open_settings, rows, wait_for_query
from browser.test_page_charts import hover, mark_plots
from home.journals import START, new_trial, record, report
from msgspec import structs

from core_sdk._ground.records import SearcherMetric
from core_sdk._home import Home, TrialFolder

NUM_STEPS = 20


def write_seeds(home: Home) -> list[TrialFolder]:
    """Trials 1 to 6: two learning rates, three seeds each. The loss is lr + seed, and the third seed ends early."""
    folders = []
    for lr in (0.5, 0.25):
        for seed in range(3):
            folder = new_trial(home, "seeds", lr=lr, seed=seed, optimizer={"name": "adam"})
            num_steps = NUM_STEPS if seed < 2 else NUM_STEPS // 2
            losses = [report(step, "validation", loss=lr + seed) for step in range(1, num_steps + 1)]
            record(folder, *losses)
            folders.append(folder)
    with home.find_or_create_experiment("seeds").edit() as edited:
        edited.searcher_metric = SearcherMetric(name="loss")
    return folders


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = Home.create(tmp_path_factory.mktemp("seeds") / "home")
    write_seeds(home)
    with serving(home) as site:
        yield site


def test_a_metric_that_no_trial_of_the_list_has_is_no_failure(tmp_path: Path, open_view: OpenView) -> None:
    """A metric that no listed trial has gives no chart and no error."""
    home = Home.create(tmp_path / "home")
    record(new_trial(home, lr=0.5), report(1, loss=1.0))
    record(new_trial(home, lr=0.25), report(1, accuracy=1.0))
    with serving(home) as site:
        page = open_view(site, "runs?view=charts&group=lr&where=id %3D 1")

        expect(page.locator(".chart-value")).to_have_text("1n = 1")
        expect(page.locator(".chart-title")).to_have_text("training.loss")
        expect(page.get_by_role("alert")).to_have_count(0)


def test_seeds_are_one_curve(seeds: Site, open_view: OpenView) -> None:
    """Each has its dash, its name and its band, and says how many trials are left at its end."""
    page = open_view(seeds, "compare?trials=1,2,3,4,5,6")
    values = page.locator(".chart-value")
    expect(values).to_have_count(6)

    page.get_by_label("Group by", exact=True).select_option("lr")
    wait_for_query(page, "group=lr")
    expect(values).to_have_text(["lr 0.250.750.04289 … 1.457, n = 2", "lr 0.510.2929 … 1.707, n = 2"])
    open_settings(page)
    page.get_by_label("Band").select_option("range")
    page.keyboard.press("Escape")
    expect(values).to_have_text(["lr 0.250.750.25 … 1.25, n = 2", "lr 0.510.5 … 1.5, n = 2"])
    hover(page, page.locator(".chart .u-over"), 0.2)
    expect(values).to_have_text(["lr 0.251.250.25 … 2.25, n = 3", "lr 0.51.50.5 … 2.5, n = 3"])

    dashes = page.locator(".grid .line-sample path").evaluate_all(
        "found => found.map((one) => one.getAttribute('stroke-dasharray'))"
    )
    assert len(set(dashes)) == 2
    expect(page.locator(".chart-note")).to_contain_text("Trials end: lr 0.25 has 2 of 3 trials from step 11 on")


def test_groups_are_drawn_over_time_and_any_metric(tmp_path: Path, open_view: OpenView) -> None:
    """The chart says how its trials are joined there; a report of trial 1 takes 1 s, and of trial 2 it takes 1.5 s."""
    home = Home.create(tmp_path / "home")
    for seconds in (1.0, 1.5):
        reports = (report(step, loss=step, tokens=1000 * step) for step in range(1, 101))
        timed = (structs.replace(one, time=START + seconds * one.steps_completed) for one in reports)
        record(new_trial(home, "speeds"), *timed)
    with serving(home) as site:
        page = open_view(site, "compare?trials=1,2&group=experiment&metrics=loss")
        note = page.locator(".chart-note")
        expect(note).to_have_text("Joined at common steps.")

        page.get_by_role("button", name="Time", exact=True).click()
        expect(note).to_contain_text(
            "Few times are common, so joined: experiment speeds in bins of 2 s. Trials end or pause:"
        )
        hover(page, page.locator(".chart .u-over"), 0.9)
        expect(page.locator(".chart-value")).to_contain_text("n = 1")
        page.get_by_role("button", name="Epochs", exact=True).click()
        expect(note).to_have_text("No trial has reported epochs with this metric.")
        page.get_by_role("button", name="More of training.loss").click()
        page.get_by_role("menuitem", name="Settings …").click()
        page.get_by_role("combobox", name="Horizontal axis").select_option("training.tokens")
        page.get_by_role("button", name="Save", exact=True).click()

        expect(note).to_have_text("Joined at common training.tokens.")
        hover(page, page.locator(".chart .u-over"), 0.5)
        expect(page.locator(".chart-place")).to_have_text(re.compile("^5[01],"))


def test_all_but_the_seed_makes_groups_whose_last_values_are_bars(seeds: Site, open_view: OpenView) -> None:
    """Groups of all hyperparameters but the seed can be drawn as bars of last values with errors."""
    page = open_view(seeds, "runs?view=charts&band=range")

    page.get_by_label("Group by", exact=True).select_option("all but seed")
    wait_for_query(page, "group=lr")
    open_settings(page)
    page.get_by_label("Draw").select_option("bars of the last values")

    bars = page.get_by_role("img", name=re.compile("^Last validation.loss"))
    expect(bars).to_have_attribute(
        "aria-label", "Last validation.loss: lr: 0.25 1.25 (0.25 … 2.25), n = 3; lr: 0.5 1.5 (0.5 … 2.5), n = 3"
    )
    expect(bars.locator(".error-bar")).to_have_count(2)


def test_all_but_the_seed_leaves_the_names_of_other_projects_out(tmp_path: Path, open_view: OpenView) -> None:
    """Trials are grouped by what varies within their experiment, and by the experiment if there are several."""
    home = Home.create(tmp_path / "home")
    write_seeds(home)
    for seed in range(2):
        record(new_trial(home, "other", seed=seed, width=8), report(1, "validation", loss=1.0))
    with serving(home) as site:
        page = open_view(site, "runs")
        page.get_by_label("Group by", exact=True).select_option("all but seed")
        wait_for_query(page, "group=experiment,lr")
        expect(page.locator(".grid-group")).to_have_count(3)

        page.goto(site.address('runs?where=experiment="seeds"'))
        page.get_by_label("Group by", exact=True).select_option("all but seed")

        wait_for_query(page, "group=lr")
        expect(page.locator(".grid-group")).to_have_count(2)


def test_two_hyperparameters_make_a_table_for_a_paper(seeds: Site, open_view: OpenView) -> None:
    """A table of two hyperparameters shows means and deviations and can be saved as LaTeX."""
    page = open_view(seeds, "experiments/1/hyperparameters?picture=pivot&hx=seed&hy=lr")
    expect(page.get_by_role("row", name=re.compile("^0.25 "))).to_contain_text("0.25 n = 11.25 n = 12.25 n = 1")

    with page.expect_download() as download:
        page.get_by_role("button", name="Save as LaTeX").click()

    assert "0.25 & $0.25$ & $1.25$ & $2.25$ \\\\" in download.value.path().read_text()


def test_a_group_leads_to_its_best_trial(seeds: Site, open_view: OpenView) -> None:
    """A group links to its best trial by the searcher's or another metric."""
    page = open_view(seeds, "experiments/1/curves?group=lr")
    group = page.locator(".grid-group", has_text="lr: 0.25")

    expect(group).to_contain_text("best 4 0.25")
    open_settings(page)
    page.get_by_label("Best").select_option("max.validation.loss")

    expect(group).to_contain_text("best 6 2.25")
    group.get_by_role("link", name="6", exact=True).click()
    expect(page.locator("h1")).to_contain_text("6")


def test_keys_are_added_and_taken_away(seeds: Site, open_view: OpenView) -> None:
    """Several keys make finer groups; without any, the trials are drawn again."""
    page = open_view(seeds, "compare?trials=1,2,3,4,5,6&group=lr")
    groups = page.locator(".grid-group")
    expect(groups).to_have_count(2)

    page.get_by_label("Group by", exact=True).select_option("seed")
    expect(groups).to_have_count(6)
    page.get_by_role("button", name="Do not group by lr").click()
    expect(groups).to_have_count(3)
    page.get_by_role("button", name="Do not group by seed").click()

    expect(page.locator(".chart-value")).to_have_count(6)


def test_a_report_joins_the_curve_of_its_group(tmp_path: Path, open_view: OpenView) -> None:
    """A new report changes its group's curve without making a new plot."""
    home = Home.create(tmp_path / "home")
    folders = write_seeds(home)
    with serving(home) as site:
        page = open_view(site, "compare?trials=1,2,3&group=lr&band=none")
        value = page.locator(".chart-value")
        expect(value).to_have_text("1n = 2")
        num_plots = mark_plots(page)

        record(
            folders[2], report(NUM_STEPS, "validation", attempt=2, loss=4.0), attempt=2, resumed_steps=NUM_STEPS // 2
        )

        expect(value).to_have_text("2n = 3")
        assert page.locator(".uplot[data-seen]").count() == page.locator(".uplot").count() == num_plots


def test_the_table_has_the_mean_and_the_best_of_each_group(seeds: Site, open_view: OpenView) -> None:
    """The table shows the mean and best of each group, also for several keys."""
    page = open_view(seeds, "experiments/1/trials?columns=id,lr,validation.loss&group=lr")
    heads = page.locator(".grid-group")

    expect(heads).to_have_text(["▾lr: 0.253best 4 0.251.25 ± 1", "▾lr: 0.53best 1 0.51.5 ± 1"])
    page.get_by_label("Group by", exact=True).select_option("optimizer.name")
    wait_for_query(page, "group=lr,optimizer.name")
    expect(heads.first).to_contain_text("lr: 0.25, optimizer.name: adam")
    heads.first.click()
    expect(rows(page)).to_have_count(3)


def test_a_spike_of_one_seed_is_in_the_band(tmp_path: Path, open_view: OpenView) -> None:
    """The band from minimum to maximum includes a spike of a single seed."""
    home = Home.create(tmp_path / "home")
    for spike in (0, 99_999):
        folder = new_trial(home, "spikes", lr=0.1)
        record(folder, *(report(step, height=spike if step == 2500 else step) for step in range(1, 5001)))
    with serving(home) as site:
        page = open_view(site, "compare?trials=1,2&group=lr&band=range")

        expect(page.get_by_role("img", name="highest 99,999")).to_be_visible()
