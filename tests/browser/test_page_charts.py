"""Charts stay as they are while one looks at them, and tell the true value under the pointer."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser.conftest import OpenView, Site, serving
from browser.sample_home import write_straight_trial
from browser.seeing import expect, labels, open_settings, wait_for_query
from home.journals import new_trial, record, report

from core_sdk._ground.records import SearcherMetric
from core_sdk._home import Home

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

NUM_STEPS = 200


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two trials whose metric is the step, and whose figure is the number of seconds since the start."""
    home = Home.create(tmp_path_factory.mktemp("straight") / "home")
    for _ in range(2):
        write_straight_trial(home, created=time.time() - 3600, num_steps=NUM_STEPS)
    with serving(home) as site:
        yield site


def hover(page: Page, plot: Locator, part: float) -> None:
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + part * box["width"], box["y"] + box["height"] / 2, steps=10)


def mark_plots(page: Page) -> int:
    """Marks all existing plots, so that new ones can be told apart, and returns their number."""
    expect(page.locator(".loading")).to_have_count(0)
    expect(page.locator(".chart:not(:has(.uplot))")).to_have_count(0)
    script = """() => {
      const plots = document.querySelectorAll(".uplot");
      for (const plot of plots) plot.dataset.seen = "1";
      return plots.length;
    }"""
    return int(page.evaluate(script))


@pytest.mark.parametrize(
    ("view", "name"),
    [
        ("trials/1", "height"), ("trials/1?x=time", "height"), ("compare?trials=1,2", "height"),
        ("experiments/1/curves", "height"), ("trials/1/system", "CPU"),
        ("trials/1/system", "training.height"), ("compare?trials=1,2&group=lr", "height"),
        ("experiments/1/curves?group=lr,label&band=range", "height"),
    ],
)  # fmt: skip
def test_the_readout_follows_the_pointer(straight: Site, open_view: OpenView, view: str, name: str) -> None:
    """The readout shows the value under the pointer, and plots are not made again."""
    page = open_view(straight, view)
    chart = page.locator(".chart").filter(has=page.locator(".chart-title", has_text=name)).first
    over = chart.locator(".u-over")
    expect(over).to_be_visible()
    num_plots = mark_plots(page)

    readouts = []
    for part in (0.2, 0.4, 0.6, 0.8):
        hover(page, over, part)
        expect(chart.locator(".chart-place")).not_to_have_text("last")
        readouts.append(float(chart.locator(".chart-value b").first.inner_text().split(" ")[0]))

    assert page.locator(".uplot[data-seen]").count() == page.locator(".uplot").count() == num_plots
    for part, value in zip((0.2, 0.4, 0.6, 0.8), readouts, strict=True):
        assert value == pytest.approx(1 + part * (NUM_STEPS - 1), abs=3)


@pytest.mark.parametrize(
    "view",
    [
        "trials/1", "compare?trials=1,2", "experiments/1/curves", "trials/1/system", "compare?trials=1,2&group=lr",
        "experiments/1/curves?group=lr",
    ],
)  # fmt: skip
def test_a_drag_zooms_where_it_was_made(straight: Site, open_view: OpenView, view: str) -> None:
    """Dragging zooms to the dragged range, and plots are not made again."""
    page = open_view(straight, view)
    over = page.locator(".chart .u-over").first
    expect(over).to_be_visible()
    num_plots = mark_plots(page)

    hover(page, over, 0.5)
    page.mouse.down()
    hover(page, over, 0.75)
    page.mouse.up()
    wait_for_query(page, "to=")
    first, last = page.evaluate(
        "['from', 'to'].map((name) => Number(new URLSearchParams(location.hash.split('?')[1]).get(name)))"
    )

    assert (first, last) == (pytest.approx(NUM_STEPS * 0.5, abs=3), pytest.approx(NUM_STEPS * 0.75, abs=3))
    hover(page, over, 0.5)
    expect(page.locator(".chart-place").first).not_to_have_text("last")
    value = float(page.locator(".chart-value b").first.inner_text().split(" ")[0])
    assert value == pytest.approx(NUM_STEPS * 0.625, abs=3)
    assert page.locator(".uplot[data-seen]").count() == page.locator(".uplot").count() == num_plots


def test_the_readout_names_a_step_at_which_something_was_reported(tmp_path: Path, open_view: OpenView) -> None:
    """The readout shows the nearest reported step; curves without a point there show their own step."""
    home = Home.create(tmp_path / "home")
    record(new_trial(home), *(report(step, loss=1.0) for step in (1, 100)))
    record(new_trial(home), *(report(step, loss=2.0) for step in (1, 40, 100)))
    for number in range(10):
        record(new_trial(home), report(1, loss=-number))
    with serving(home) as site:
        page = open_view(site, "compare?trials=" + ",".join(str(number) for number in range(1, 13)))
        over = page.locator(".u-over")
        expect(over).to_be_visible()

        hover(page, over, 0.3)

        expect(page.locator(".chart-place")).to_have_text("40")
        tooltip = page.locator(".tooltip")
        expect(tooltip.locator("> b")).to_have_text("40")
        expect(tooltip.locator(".tip-row")).to_have_text(
            labels("22", "11at 1", *(f"{n}{3 - n or 0}at 1" for n in range(3, 11)))
        )
        expect(tooltip.locator("> .soft")).to_have_text("+2")


def test_the_last_value_of_a_long_curve_is_a_value(long: Site, open_view: OpenView) -> None:
    """The last value shown for a long curve is the last reported value."""
    page = open_view(long, "trials/1?metrics=height")

    expect(page.locator(".chart-value")).to_have_text("5,000")


def test_a_chart_in_which_nothing_can_be_drawn_says_why(tmp_path: Path, open_view: OpenView) -> None:
    """An empty chart says why: values of 0 or below on a log axis, NaN or too large."""
    home = Home.create(tmp_path / "home")
    record(
        new_trial(home),
        *(report(step, below=-step, none="NaN", huge=-((-1) ** step) * 1e308) for step in (1, 2)),
    )
    with serving(home) as site:
        page = open_view(site, "trials/1?log=1")

        for name, reason in [("below", "none is above 0"), ("none", "NaN or infinite"), ("huge", "too large")]:
            chart = page.locator(".chart").filter(has=page.locator(".chart-title", has_text=name))
            expect(chart.locator(".chart-reason")).to_contain_text(reason)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two trials with more points than a chart has buckets; the metric is the step."""
    home = Home.create(tmp_path_factory.mktemp("long") / "home")
    for _ in range(2):
        record(new_trial(home, "long"), *(report(step, height=step, epochs=step) for step in range(1, 5001)))
    with serving(home) as site:
        yield site


@pytest.mark.parametrize(
    ("view", "coarse"),
    [
        ("compare?trials=1,2", "…"),
        ("compare?trials=1,2&x=epochs", "…"),
        ("compare?trials=1,2&group=experiment&band=none", r"\d{4}n = 2"),  # not whole
    ],
)
def test_a_zoom_shows_finer_points(long: Site, open_view: OpenView, view: str, coarse: str) -> None:
    """The coarse ones stay in the plot until these are there. A link shows the same, and one can go on from it."""
    view += "&metrics=height"
    page = open_view(long, view)
    chart = page.locator(".chart")
    over, value = chart.locator(".u-over"), chart.locator(".chart-value").first
    expect(over).to_be_visible()
    hover(page, over, 0.5)
    expect(value).to_have_text(re.compile(coarse))
    num_plots = mark_plots(page)
    held: list[Route] = []
    page.route(re.compile("first=|finer_from="), lambda route: held.append(route))

    page.evaluate("view => { location.hash = `#/${view}&from=2500&to=2600`; }", view)
    expect(page.get_by_role("button", name="Show all")).to_be_visible()
    hover(page, over, 0.45)
    expect(value).to_have_text(re.compile(coarse))
    assert len(held) == 1
    held[0].continue_()
    page.unroute_all()

    exact = re.compile(r"2,5[45]\d(n = 2)?$")
    expect(value).to_have_text(exact)
    assert page.locator(".uplot[data-seen]").count() == page.locator(".uplot").count() == num_plots == 1
    page.reload()
    hover(page, over, 0.45)
    expect(value).to_have_text(exact)
    chart.get_by_role("img").press("ArrowRight")
    wait_for_query(page, "from=2520&to=2620")
    chart.get_by_role("img").press("0")
    hover(page, over, 0.5)
    expect(value).to_have_text(re.compile(coarse))


@pytest.mark.parametrize("view", ["trials/1?smoothing=0.9", "compare?trials=1,2&group=lr&smoothing=0.9"])
def test_smoothing_counts_points(straight: Site, open_view: OpenView, view: str) -> None:
    """Smoothing gives the same value at a step at any zoom."""
    page = open_view(straight, view)
    over = page.locator(".chart .u-over").first
    expect(over).to_be_visible()

    def smooth_at(part: float) -> float:
        hover(page, over, part)
        expect(page.locator(".chart-place").first).not_to_have_text("last")
        return float(page.locator(".chart-value b").first.inner_text())

    whole = smooth_at(0.625)
    with curves_drawn(page):
        page.evaluate("view => { location.hash = `#/${view}&from=100.5&to=150.25`; }", view)
    expect(page.get_by_role("button", name="Show all").first).to_be_visible()
    hover(page, over, 0.2)
    zoomed = smooth_at(0.5)

    assert zoomed == pytest.approx(whole, abs=3)


def test_a_report_leaves_the_pointer_alone(tmp_path: Path, open_view: OpenView) -> None:
    """New reports are added to the existing plot and do not move the readout."""
    home = Home.create(tmp_path / "home")
    folder = write_straight_trial(home, created=time.time() - 3600, num_steps=NUM_STEPS)
    with serving(home) as site:
        page = open_view(site, "trials/1")
        over = page.locator(".chart .u-over").first
        expect(over).to_be_visible()
        num_plots = mark_plots(page)
        hover(page, over, 0.5)
        expect(page.locator(".chart-place").first).not_to_have_text("last")

        with curves_drawn(page):
            folder.journal_path(2).write_bytes(second_attempt(folder.trial_id, NUM_STEPS))
        expect(page.locator(".subject-facts")).to_contain_text(f"{2 * NUM_STEPS} steps")

        expect(page.locator(".chart-place").first).not_to_have_text("last")
        assert page.locator(".uplot[data-seen]").count() == page.locator(".uplot").count() == num_plots


@contextmanager
def curves_drawn(page: Page) -> Iterator[None]:
    """Waits until the curves for which the block lets the page ask are drawn."""
    with page.expect_request_finished(lambda request: "/metrics?" in request.url or "/groups?" in request.url):
        yield
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def second_attempt(trial_id: int, resumed_steps: int) -> bytes:
    from core_sdk._ground.records import FORMAT, AttemptStarted, Ended, Report
    from core_sdk._home.journal import encode_line

    started = AttemptStarted(
        time=time.time(), format=FORMAT, trial_id=trial_id, attempt=2, host="node-7", pid=1, sdk_version="0",
        resumed_steps=resumed_steps,
    )  # fmt: skip
    reports = [
        Report(time.time(), "training", resumed_steps + step, {"height": step}) for step in range(1, resumed_steps + 1)
    ]
    ended = Ended(time=time.time(), outcome="completed")
    return b"".join([encode_line(started), *map(encode_line, reports), encode_line(ended)])


@pytest.mark.parametrize("name", ["constructor", "__proto__"])
def test_names_that_every_object_has_are_names(tmp_path: Path, open_view: OpenView, name: str) -> None:
    """Names such as "constructor" work as metrics and hyperparameters in every view."""
    home = Home.create(tmp_path / "home")
    for number in (1, 2, 3):
        write_straight_trial(home, created=time.time() - 3600, num_steps=number, metric=name, hparams={name: number})
    with serving(home) as site:
        page = open_view(site, f"experiments/1/hyperparameters?metric=training.{name}")

        expect(page.locator(".coordinate:not(.outside)")).to_have_count(3)
        page.get_by_label("Range of").select_option(f"hparams.{name}")
        page.get_by_label(f"Lower end of hparams.{name}").fill("0.6")
        expect(page.locator(".coordinate:not(.outside)")).to_have_count(1)
        page.goto(site.address("compare/values?trials=1,2"))
        expect(page.get_by_role("row", name=f"training.{name}")).to_contain_text("1")
        page.goto(site.address(f"runs?columns=id,hparams.{name},training.{name}"))
        expect(page.get_by_role("columnheader", name=f"training.{name}")).to_be_visible()


def test_every_metric_has_its_curve_however_many_there_are(tmp_path: Path, open_view: OpenView) -> None:
    """Every metric has its curve, even if there are more than one answer can hold."""
    home = Home.create(tmp_path / "home")
    folder = new_trial(home)
    metrics: dict[str, Any] = {f"m{index:02d}": index for index in range(70)}
    record(folder, report(1, **metrics))
    record(folder, report(1, **metrics), rank=1)
    with serving(home) as site:
        page = open_view(site, "trials/1")
        values = page.locator(".chart-value")
        panels = page.locator(".panel")
        expect(panels).to_have_count(24)

        page.get_by_role("button", name="Show 24 more charts").click()
        page.get_by_role("button", name="Show 22 more charts").click()

        expect(panels).to_have_count(70)
        expect(page.get_by_role("button", name="more chart")).to_have_count(0)
        panels.last.scroll_into_view_if_needed()
        expect(panels.last.locator(".chart-value")).to_have_text("69")
        page.goto(site.address("trials/1?metrics=m0[0-5]&reports=all"))
        expect(values).to_have_count(12)
        page.goto(site.address("compare?trials=1&reports=all&metrics=m[06]9$"))
        expect(values).to_have_count(4)


def expect_each(found: Locator, *texts: str) -> None:
    """Waits until the elements have these texts, in any order."""
    expect(found).to_have_count(len(texts))
    for text in texts:
        expect(found.filter(has_text=re.compile(f"^{re.escape(text)}$"))).to_have_count(1)


def test_trials_are_compared_by_any_rank(tmp_path: Path, open_view: OpenView) -> None:
    """A comparison shows the lowest rank, a chosen one, a writer's reports, or everybody's."""
    home = Home.create(tmp_path / "home")
    folder = new_trial(home, "ranks")
    record(folder, report(1, loss=0.5))
    record(folder, report(1, loss=5.0), report(1, "validation", accuracy=0.75), rank=1)
    record(folder, report(1, "validation", accuracy=1.0), rank="evaluator")
    record(new_trial(home, "ranks"), report(1, loss=0.25))
    with serving(home) as site:
        page = open_view(site, "compare?trials=1,2")
        titles = page.locator(".chart-title")
        values = page.locator(".chart-value")
        open_settings(page)
        choice = page.get_by_label("Rank", exact=True)
        expect(values).to_have_count(3)

        choice.select_option("1")
        expect_each(titles, "training.loss, rank 1", "validation.accuracy, rank 1")
        expect_each(values, "5", "0.75")
        choice.select_option("evaluator")
        expect_each(titles, "training.loss", "validation.accuracy, evaluator")
        choice.select_option("all")
        expect_each(titles, "training.loss", "validation.accuracy")
        expect(values).to_have_count(5)
        for label in labels("1, rank 00.5", "1, rank 15", "2, rank 00.25", "1, rank 10.75", "1, evaluator1"):
            expect(values.filter(has_text=label)).to_have_count(1)
        page.goto(site.address("compare?trials=2,2"))
        expect(titles).to_have_count(1)
        open_settings(page)
        expect(choice).to_have_count(0)


def test_learning_curves_are_those_of_any_rank(tmp_path: Path, open_view: OpenView) -> None:
    """Learning curves show the lowest rank until another is chosen."""
    home = Home.create(tmp_path / "home")
    folder = new_trial(home, "ranks")
    record(folder, report(1, "validation", loss=0.5))
    record(folder, report(1, "validation", loss=5.0), rank=1)
    record(new_trial(home, "ranks"), report(1, "validation", loss=0.25))
    with home.find_or_create_experiment("ranks").edit() as edited:
        edited.searcher_metric = SearcherMetric(name="loss")
    with serving(home) as site:
        page = open_view(site, "experiments/1/curves")
        values = page.locator(".chart-value")
        open_settings(page)
        choice = page.get_by_label("Rank", exact=True)
        expect(values).to_have_text(labels("20.25", "10.5"))

        choice.select_option("1")

        expect(page.locator(".chart-title")).to_have_text("validation.loss, rank 1")
        expect(values).to_have_text("5")
        expect(choice.locator("option")).to_have_text(["lowest", "0", "1", "all"])


def test_each_rank_is_shown_when_it_is_asked_for(tmp_path: Path, open_view: OpenView) -> None:
    """A trial's charts show the lowest rank of each metric, one rank or all."""
    home = Home.create(tmp_path / "home")
    folder = new_trial(home)
    record(folder, report(1, loss=0.5), report(2, loss=0.25))
    record(folder, report(1, loss=5.0), report(2, "validation", accuracy=0.75), rank=1)
    with serving(home) as site:
        page = open_view(site, "trials/1")
        values = page.locator(".chart-value")
        titles = page.locator(".chart-title")
        expect(titles).to_have_count(2)
        shown = values.all_inner_texts()

        open_settings(page)
        page.get_by_label("Rank", exact=True).select_option("0")
        expect(titles).to_have_text(["training.loss, rank 0"])
        of_0 = values.all_inner_texts()
        page.get_by_label("Rank", exact=True).select_option("all")
        expect(values).to_have_count(3)
        of_all = values.all_inner_texts()
        expect(titles).to_have_text(["validation.accuracy, rank 1", "training.loss"])

    assert ["0.75" in shown[0], "0.25" in shown[1], "0.25" in of_0[0]] == [True] * 3
    assert ["0.75" in of_all[0], "rank 0" in of_all[1], "rank 1" in of_all[2], "5" in of_all[2]] == [True] * 4


def test_a_single_point_is_a_dot_also_in_a_saved_picture(tmp_path: Path, open_view: OpenView) -> None:
    """A single point is drawn as a dot, also in a saved picture."""
    home = Home.create(tmp_path / "home")
    record(new_trial(home), report(7, loss=0.5))
    with serving(home) as site:
        page = open_view(site, "trials/1")

        page.get_by_role("button", name="More of training.loss").click()
        with page.expect_download() as download:
            page.get_by_role("menuitem", name="Save as SVG").click()

        assert "<circle" in download.value.path().read_text()
