"""The workspace: charts next to the list of trials, and what somebody makes of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser.conftest import OpenView, Site, serving
from browser.seeing import expect, labels, open_settings, rows, wait_for_query
from browser.test_page_charts import hover
from home.journals import append, lines, new_trial, record, report
from processes import wait_for

from core_sdk._ground.records import Alert
from core_sdk._home import Home

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

NUM_STEPS = 50


def write_trials(home: Home) -> None:
    """Trials 1 to 3, whose losses lie 10 apart: 10, 20 and 30; tokens are a thousand times the step."""
    for number, lr in enumerate((0.001, 0.01, 0.1), start=1):
        folder = new_trial(home, "sweep", lr=lr, seed=7)
        reports = [
            report(step, loss=10.0 * number, tokens=1000 * step, accuracy=number / 10) for step in range(1, NUM_STEPS)
        ]
        record(folder, *reports)


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[Site]:
    home = Home.create(tmp_path / "home")
    write_trials(home)
    with serving(home) as site:
        yield site


def chart(page: Page, title: str) -> Locator:
    return page.locator(".chart").filter(has=page.locator(f".chart-title[title='{title}']"))


def choose(page: Page, title: str, action: str) -> None:
    page.get_by_role("button", name=f"More of {title}", exact=True).click()
    page.get_by_role("menuitem", name=action, exact=True).click()


def titles(page: Page) -> Locator:
    return page.locator(".chart-title")


def test_an_eye_shows_and_hides_the_curve_of_a_trial(sweep: Site, open_view: OpenView) -> None:
    """Every chart follows, the address holds it, and curves keep their colours. A key does it too."""
    page = open_view(sweep, "runs?view=charts")
    values = chart(page, "training.loss").locator(".chart-value")
    expect(values).to_have_text(labels("3 · lr 0.130", "2 · lr 0.0120", "1 · lr 0.00110"))
    line = rows(page).last.locator(".line-sample path")
    colour = line.get_attribute("style")

    page.get_by_role("button", name="Curve of trial 3").click()
    expect(values).to_have_text(labels("2 · lr 0.0120", "1 · lr 0.00110"))
    wait_for_query(page, "eyes=-3")
    assert line.get_attribute("style") == colour
    page.get_by_role("grid").focus()
    page.keyboard.press("e")
    expect(values).to_have_count(3)
    page.get_by_role("button", name="Curves of all trials").click()
    expect(page.get_by_text("No trial is shown.")).to_be_visible()
    page.get_by_role("button", name="Curve of trial 2").click()

    expect(values).to_have_text(["20"])
    page.reload()
    expect(values).to_have_text(["20"])


def test_a_curve_stands_out_wherever_it_is_pointed_at(sweep: Site, open_view: OpenView) -> None:
    """Pointing at a row marks its values in all charts, and pointing at a curve marks its row."""
    page = open_view(sweep, "runs?view=charts&columns=id,lr")
    marked = page.locator(".chart-value.marked")
    expect(page.locator(".chart .u-over")).to_have_count(3)

    rows(page).nth(1).hover()
    expect(marked.locator(".chart-label")).to_have_text(labels("2 · lr 0.01") * 3)
    hover(page, chart(page, "training.loss").locator(".u-over"), 0.5)

    expect(marked.locator(".chart-label")).to_have_text(labels("2 · lr 0.01") * 3)
    expect(rows(page).nth(1).locator(".eye.marked")).to_have_count(1)
    expect(page.locator(".chart-place")).to_have_text(["25"] * 3)


def test_a_baseline_is_drawn_in_every_chart(sweep: Site, open_view: OpenView) -> None:
    """A baseline trial is drawn in every chart and in later views."""
    page = open_view(sweep, "runs?view=charts&where=id < 3&metrics=loss")
    values = page.locator(".chart-value")
    expect(values).to_have_count(2)

    open_settings(page)
    page.get_by_label("Baseline", exact=True).fill("3")
    page.get_by_label("Baseline", exact=True).press("Enter")

    expect(values.last).to_have_text("baseline 330")
    page.goto(sweep.address("runs?view=charts&where=id < 3&metrics=loss&group=state&baseline=3"))
    expect(values).to_have_count(2)
    expect(values.last).to_have_text("baseline 330")
    page.goto(sweep.address("trials/1?metrics=loss"))
    expect(values.last).to_have_text("baseline 330")


def test_colours_tell_a_hyperparameter(sweep: Site, open_view: OpenView) -> None:
    """Colours can show a hyperparameter, with a numeric scale as legend, or the trials' states."""
    page = open_view(sweep, "runs?view=charts")
    legend = page.get_by_role("group", name="Colours")

    open_settings(page)
    page.get_by_label("Colour", exact=True).select_option("lr")
    expect(legend).to_contain_text("0.0010.010.1")
    page.get_by_label("Scale").select_option("linear")
    expect(legend).to_contain_text("0.020.040.060.080.1")
    page.get_by_label("Colour", exact=True).select_option("state")

    expect(legend).to_have_text("stateERROR")
    dashes = page.locator(".grid .line-sample path").evaluate_all(
        "found => found.map((one) => one.getAttribute('stroke-dasharray'))"
    )
    assert len(set(dashes)) == 3


@pytest.mark.parametrize(("view", "num_curves"), [("runs?view=charts&", 6), ("trials/1?", 2)])
def test_a_chart_has_settings_of_its_own(sweep: Site, open_view: OpenView, view: str, num_curves: int) -> None:
    """A chart has its own metrics, axis, scales, limits and caption, and a link keeps them all."""
    page = open_view(sweep, f"{view}metrics=loss")
    expect(titles(page)).to_have_text(["training.loss"])

    page.get_by_role("button", name="Add chart").click()
    page.get_by_label("Title").fill("Both")
    page.get_by_label("Metrics by regular expression").fill("loss|acc")
    page.get_by_role("combobox", name="Horizontal axis").select_option("training.tokens")
    page.get_by_label("Its scale").select_option("logarithmic")
    page.get_by_label("Lowest value").fill("-5")
    page.get_by_label("Caption").fill("Against the tokens")
    page.get_by_role("button", name="Save", exact=True).click()

    added = chart(page, "Both")
    expect(titles(page)).to_have_text(["Both", "training.loss"])
    expect(added.locator(".chart-value")).to_have_count(num_curves)
    expect(added.locator(".chart-note")).to_have_text("Against the tokens")
    hover(page, added.locator(".u-over"), 0.5)
    expect(added.locator(".chart-place")).to_have_text(re.compile("^(6,9|7,0)"))  # the square root of 1,000 · 49,000
    link = page.url
    page.goto(sweep.address("queue"))
    page.goto(link)
    expect(titles(page)).to_have_text(["Both", "training.loss"])


def test_charts_are_arranged(sweep: Site, open_view: OpenView) -> None:
    """Charts can be pinned, moved, enlarged and hidden, and saved views keep the arrangement."""
    page = open_view(sweep, "runs?view=charts")
    expect(titles(page)).to_have_text(["training.loss", "training.tokens", "training.accuracy"])

    choose(page, "training.tokens", "Pin")
    choose(page, "training.accuracy", "Pin")
    expect(titles(page)).to_have_text(["training.tokens", "training.accuracy", "training.loss"])
    page.get_by_role("button", name="Move training.accuracy").press("ArrowLeft")
    expect(titles(page)).to_have_text(["training.accuracy", "training.tokens", "training.loss"])
    expect(page.get_by_role("button", name="Move training.accuracy")).to_be_focused()
    page.get_by_role("button", name="Move training.loss").drag_to(chart(page, "training.tokens"))
    arranged = ["training.accuracy", "training.loss", "training.tokens"]
    expect(titles(page)).to_have_text(arranged)
    choose(page, "training.tokens", "Hide")
    expect(titles(page)).to_have_text(arranged[:2])
    page.get_by_role("button", name="1 hidden chart, show").click()
    expect(titles(page)).to_have_text(arranged)

    page.get_by_role("button", name="Saved views").click()
    page.get_by_role("menuitem", name="Save this view …").click()
    page.get_by_label("Name of the view").fill("mine")
    with page.expect_response("**/preferences/actions/keep"):
        page.get_by_role("button", name="Save", exact=True).click()
    page.goto(sweep.address("compare?trials=1,2"))
    expect(titles(page)).to_have_text(arranged)
    choose(page, "training.loss", "Unpin")
    expect(titles(page)).to_have_text(["training.accuracy", "training.tokens", "training.loss"])
    page.get_by_role("button", name="Saved views").click()
    page.get_by_role("menuitem", name="mine", exact=True).click()
    expect(titles(page)).to_have_text(arranged)
    expect(rows(page)).to_have_count(2)
    choose(page, "training.accuracy", "Enlarge")
    expect(page.locator(".panel.big")).to_have_count(1)


def test_the_charts_begin_near_the_top_and_every_tool_is_in_reach(sweep: Site, open_view: OpenView) -> None:
    """The list and its charts share a line of tools; what has no place in it is behind two buttons."""
    for width, height, top in ((1440, 900, 140), (1024, 768, 140), (390, 844, 440)):
        page = open_view(sweep, "runs?view=charts", size=(width, height))
        expect(page.locator(".chart canvas").first).to_be_visible()
        bars = page.locator(".toolbar").evaluate_all("found => found.map((one) => one.getBoundingClientRect().height)")
        starts = page.locator(".chart").first.evaluate("(chart) => chart.getBoundingClientRect().top")
        assert (len(bars), starts <= top) == (1, True), (width, bars, starts)

        page.get_by_role("button", name="Filter, columns").click()
        for tool in ("Filter", "Group by"):
            expect(page.get_by_label(tool, exact=True)).to_be_visible()
        for tool in ("Columns", "Saved views", "More of the table"):
            expect(page.get_by_role("button", name=tool, exact=True)).to_be_visible()
        open_settings(page)
        for tool in ("Smoothing", "Find a metric", "Log y", "Curves", "Baseline"):
            expect(page.get_by_label(tool).first).to_be_visible()
        expect(page.get_by_role("group", name="Horizontal axis")).to_be_visible()
        expect(page.get_by_role("button", name="Add chart")).to_be_visible()
        box = page.locator(".folded-body").evaluate(
            "(box) => [box.getBoundingClientRect().left, box.getBoundingClientRect().right]"
        )
        assert box[0] >= 0, box
        assert box[1] <= width, box


def test_a_formula_of_metrics_is_a_chart(sweep: Site, open_view: OpenView) -> None:
    """A wrong formula says what is wrong and is not saved, and a right one has a curve of each trial."""
    page = open_view(sweep, "compare?trials=1,2,3")
    page.get_by_role("button", name="Add chart").click()
    dialog = page.get_by_role("dialog")
    save = dialog.get_by_role("button", name="Save", exact=True)
    dialog.get_by_label("Formula").fill("loss / nothing")
    expect(dialog.get_by_role("status")).to_have_text("loss / nothingThere is no metric nothing.")
    expect(save).to_be_disabled()

    dialog.get_by_label("Formula").fill("loss / accuracy")
    save.click()

    values = chart(page, "loss / accuracy").locator(".chart-value b")
    expect(values).to_have_text(["100", "100", "100"])
    wait_for_query(page, '"formula":"loss+/+accuracy"')


def test_charts_are_split_by_a_value(sweep: Site, open_view: OpenView) -> None:
    """Each value of a hyperparameter has a small panel with its curves, in each chart; the choice is in the address."""
    page = open_view(sweep, "compare?trials=1,2,3")
    open_settings(page)

    page.get_by_label("Split by").select_option("lr")

    wait_for_query(page, "facet=lr")
    losses = page.locator(".facets", has=page.locator("> figcaption .chart-title[title='training.loss']"))
    expect(losses.locator(".facet-grid .chart-title")).to_have_text(["lr 0.001", "lr 0.01", "lr 0.1"])
    expect(losses.locator(".facet-grid .chart-value b")).to_have_text(["10", "20", "30"])
    page.get_by_label("Split by").select_option("nothing")
    expect(page.locator(".facets")).to_have_count(0)


def test_charts_whose_data_is_known_already_are_arranged_like_the_last_ones(sweep: Site, open_view: OpenView) -> None:
    """An arrangement of charts also applies to charts that are drawn from known data."""
    page = open_view(sweep, "compare?trials=1,2")
    expect(titles(page)).to_have_text(["training.loss", "training.tokens", "training.accuracy"])
    page.goto(sweep.address("compare?trials=1,2,3"))
    expect(titles(page)).to_have_text(["training.loss", "training.tokens", "training.accuracy"])
    choose(page, "training.accuracy", "Pin")

    for view in ("compare?trials=1,2", "trials/1"):
        page.goto(sweep.address(view))
        expect(titles(page)).to_have_text(["training.accuracy", "training.loss", "training.tokens"])


@pytest.mark.parametrize("panels", ["[1", "{}", '[{"id": 5}]', json.dumps([{"id": "+1", "of": [3], "y": ["a", None]}])])
def test_a_link_that_somebody_has_spoilt_shows_the_charts(sweep: Site, open_view: OpenView, panels: Any) -> None:
    """A link with an invalid arrangement shows the default charts."""
    page = open_view(sweep, f"runs?view=charts&panels={panels}")

    expect(titles(page)).to_have_text(["training.loss", "training.tokens", "training.accuracy"])


def test_alerts_are_marks_in_a_comparison(tmp_path: Path, open_view: OpenView) -> None:
    """Alerts of compared trials are marks in the colours of their curves."""
    home = Home.create(tmp_path / "home")
    write_trials(home)
    for number, step, num_alerts in ((2, 25, 1), (1, 5, 7)):
        alerts = [Alert(time=0.0, title=f"Alert {index}", description="", level="warn") for index in range(num_alerts)]
        append(home.folder(number), 1, lines(report(step, loss=10.0 * number), *alerts))
    with serving(home) as site:
        page = open_view(site, "compare?trials=1,2,3&metrics=loss")
        over = chart(page, "training.loss").locator(".u-over")
        told = page.locator(".chart-values .warning")
        expect(over).to_be_visible()

        of_1, of_2 = (page.evaluate(_COLOUR_OF, row) for row in (0, 1))
        wait_for(lambda: [_colour_at_the_top(page, part / 48) for part in (4, 24)] == [of_1, of_2])

        hover(page, over, 24 / 48)  # where the curve of trial 2 is
        expect(told).to_have_text([re.compile(r"^⚠ \w+-\w+-2: Alert 0$")])
        wait_for(lambda: of_1 not in (_colour_at_the_top(page, part / 48) for part in (4, 24)))
        assert _colour_at_the_top(page, 24 / 48) == of_2
        hover(page, over, 4 / 48)

        expect(told).to_have_count(4)
        expect(told.last).to_have_text("and 4 more")


_COLOUR_OF = """index => {
  const line = document.querySelectorAll(".grid .line-sample path")[index];
  return getComputedStyle(line).stroke.match(/\\d+/g).map(Number);
}"""


def _colour_at_the_top(page: Page, part: float) -> list[int]:
    """Returns the colour of the pixel below the upper edge of the first plot, at this part of its width."""
    script = """part => {
      const boxOf = (name) => document.querySelector(`.chart ${name}`).getBoundingClientRect();
      const [over, whole] = [boxOf(".u-over"), boxOf(".uplot")];
      const place = [over.left - whole.left + part * over.width, over.top - whole.top + 3];
      const [x, y] = place.map((pixels) => pixels * devicePixelRatio);
      const { data } = document.querySelector(".chart canvas").getContext("2d").getImageData(x, y, 1, 1);
      return [...data].slice(0, 3);
    }"""
    return list(page.evaluate(script, part))
