"""One trial: its charts, output, checkpoints and figures."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser.conftest import OpenView, Site, serving
from browser.sample_home import HOSTILE, write_log_lines
from browser.seeing import expect, open_settings, rows, wait_for_query
from processes import Script, wait_for

from core_sdk._execution.steering import trials
from core_sdk._ground.records import Report
from core_sdk._home import Home
from core_sdk._home.attempts.running import await_end
from core_sdk._home.journal import encode_line

LOSS = "training.loss"

# Says when it has begun; ends when it is asked to stop.
OBEDIENT = """
    from core_sdk import core

    with core.init(name="obedient") as context:
        print("begun", flush=True)
        steps = 0
        while not context.preempt.should_preempt():
            steps += 1
            context.train.report_training_metrics(steps_completed=steps, metrics={"loss": 1 / steps})
"""


def test_each_metric_has_a_chart(site: Site, open_view: OpenView) -> None:
    """Each metric has a chart with a description, by group or by name."""
    page = open_view(site, "trials/25")
    chart = page.get_by_role("img", name=re.compile(f"^Chart of {LOSS}"))

    expect(chart).to_have_attribute("aria-label", re.compile("highest 7"))
    expect(page.locator(".chart")).to_have_count(5)
    open_settings(page)
    page.get_by_role("button", name="By name").click()

    expect(page.locator(".chart")).to_have_count(4)
    wait_for_query(page, "by=name")


def test_an_alert_is_shown_where_it_happened(site: Site, open_view: OpenView) -> None:
    """An alert is shown at its step in the charts and in the overview."""
    page = open_view(site, "trials/25?from=758&to=798")
    plot = page.locator(".chart .u-over").first
    expect(page.get_by_role("button", name="Show all").first).to_be_visible()

    def words_at_the_middle() -> str:
        if (box := plot.bounding_box()) is not None:
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50)
        return page.locator(".chart-values").first.inner_text()

    wait_for(lambda: "Spike: the loss is 7" in words_at_the_middle())
    page.goto(site.address("trials/25/overview"))
    expect(page.get_by_role("row", name=re.compile("778 .* error Spike the loss is 7"))).to_be_visible()


def test_a_trial_is_named_and_noted(own_site: Site, open_view: OpenView) -> None:
    """A trial can be named and noted, and can be found by both."""
    page = open_view(own_site, "trials/25/overview")
    page.get_by_role("button", name="Rename …").click()
    page.get_by_label("New name").fill("the good one")
    page.get_by_role("button", name="Rename trial").click()
    expect(page.locator(".subject").get_by_text("the good one")).to_be_visible()
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Notes in Markdown").fill("It *converges*.")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".markdown em")).to_have_text("converges")
    page.get_by_role("button", name="Delete …").click()
    delete = page.get_by_role("button", name="Delete trial")
    expect(delete).to_have_css("background-color", "rgb(180, 35, 35)")
    page.get_by_role("button", name="Cancel").click()

    for question in ("search=the good one", "where=notes contains converges and name contains good"):
        page.goto(own_site.address(f"runs?{question}"))
        expect(rows(page)).to_have_count(1)
        expect(rows(page)).to_contain_text("the good one")


def test_a_spike_of_one_point_is_drawn(site: Site, open_view: OpenView) -> None:
    """A spike of a single point is drawn."""
    page = open_view(site, "trials/25?superseded=0&metrics=training.loss")
    expect(page.locator(".chart canvas").first).to_be_visible()

    count_columns = """() => {
          const canvas = document.querySelector(".chart canvas");
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, Math.round(canvas.height / 4));
          const found = new Set();
          for (let at = 0; at < data.length; at += 4)
            if (data[at + 3] > 120 && data[at + 2] > 180 && data[at] < 80) found.add((at / 4) % canvas.width);
          return found.size;
        }"""

    wait_for(lambda: 1 <= page.evaluate(count_columns) <= 6)


def test_the_address_holds_how_charts_are_drawn(site: Site, open_view: OpenView) -> None:
    """The options of charts are kept in the address."""
    page = open_view(site, "trials/25")
    page.get_by_role("button", name="Time").click()
    open_settings(page)
    page.get_by_label("Log y").check()
    page.get_by_label("Ignore outliers").check()
    page.get_by_label("Smoothing").fill("0.8")
    page.get_by_label("Superseded").uncheck()
    for part in ("x=time", "log=1", "outliers=0", "smoothing=0.8", "superseded=0"):
        wait_for_query(page, part)

    page.reload()

    expect(page.get_by_role("button", name="Time")).to_have_attribute("aria-pressed", "true")
    open_settings(page)
    expect(page.get_by_label("Log y")).to_be_checked()
    expect(page.locator("output.smoothing")).to_have_text("0.80")


def test_charts_zoom_by_keys_and_by_dragging(site: Site, open_view: OpenView) -> None:
    """All charts of a trial zoom together by keys and by dragging."""
    page = open_view(site, "trials/25")
    plot = page.get_by_role("img", name=re.compile(f"^Chart of {LOSS}"))
    plot.focus()

    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    wait_for_query(page, "from=")
    expect(page.get_by_role("button", name="Show all").first).to_be_visible()
    page.keyboard.press("0")
    page.wait_for_function("() => !location.hash.includes('from=')")

    def is_zoomed_by_a_drag() -> bool:
        # Charts are drawn again after a zoom: one that is just being replaced cannot be dragged over.
        if (box := page.locator(".chart .u-over").first.bounding_box()) is not None:
            page.mouse.move(box["x"] + 60, box["y"] + 50)
            page.mouse.down()
            page.mouse.move(box["x"] + 200, box["y"] + 60, steps=4)
            page.mouse.up()
        return "to=" in page.evaluate("location.hash")

    wait_for(is_zoomed_by_a_drag)


@pytest.mark.parametrize(("item", "beginning"), [("PNG", b"\x89PNG"), ("SVG", b"<svg xmlns"), ("CSV", b"curve,is_")])
def test_a_chart_is_saved(site: Site, open_view: OpenView, tmp_path: Path, item: str, beginning: bytes) -> None:
    """A chart can be saved as PNG, SVG or CSV."""
    page = open_view(site, "trials/25")
    page.get_by_role("button", name=f"More of {LOSS}").click()

    with page.expect_download() as download:
        page.get_by_role("menuitem", name=f"Save as {item}").click()
    download.value.save_as(tmp_path / "chart")

    assert (tmp_path / "chart").read_bytes().startswith(beginning)
    if item == "CSV":
        with (tmp_path / "chart").open(newline="") as file:
            assert max(float(row["maximum"]) for row in csv.DictReader(file) if row["maximum"] != "NaN") > 7


def test_a_report_is_on_the_screen_soon(own_site: Site, open_view: OpenView) -> None:
    """A new report is soon shown without a reload."""
    page = open_view(own_site, "trials/24")
    expect(page.locator(".chart").first).to_be_visible()

    with own_site.home.folder(24).journal_path(1).open("ab") as journal:
        journal.write(encode_line(Report(1.8e9, "training", 77_777, {"loss": 0.5, "news": 1.0})))

    expect(page.get_by_role("img", name=re.compile("^Chart of training.news"))).to_be_visible()
    expect(page.locator(".subject-facts")).to_contain_text("77,777 steps")


def test_the_overview_tells_the_facts(site: Site, open_view: OpenView) -> None:
    """The overview shows values, hyperparameters, the command and the machine."""
    page = open_view(site, "trials/25/overview")

    for fact in ("model.dropout", "validation.perplexity", "python3 train.py", "NVIDIA H100", "8c1f0e2d4b5a"):
        expect(page.get_by_text(fact).first).to_be_visible()


def test_figures_of_the_machine_have_charts(site: Site, open_view: OpenView) -> None:
    """Figures of the machine have charts, and GPUs share one."""
    page = open_view(site, "trials/25/system")

    expect(page.get_by_role("img", name=re.compile("Chart of CPU"))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("Chart of GPU.*GPU-0.*GPU-1"))).to_be_visible()


def test_output_is_shown_as_text_with_its_colours(site: Site, open_view: OpenView) -> None:
    """Output is shown with its colours, and HTML in it as text."""
    page = open_view(site, "trials/25/logs?attempt=1")

    expect(page.locator(".log")).to_contain_text(HOSTILE)
    expect(page.locator(".log .ansi-bold")).to_have_text("attempt 1")
    assert "\x1b" not in page.locator(".log").inner_text()


def test_output_is_filtered_by_text_rank_and_level(site: Site, open_view: OpenView) -> None:
    """Output can be filtered by text, rank and level, and the lines found are counted."""
    page = open_view(site, "trials/25/logs?attempt=1")
    status = page.locator(".toolbar [role=status]")
    expect(status).to_contain_text("lines")

    page.get_by_label("Find in the output").fill("traceback")
    expect(status).to_contain_text("1 line of")
    page.get_by_label("Find in the output").fill("step 77:")
    expect(status).to_contain_text("2 lines of")
    page.get_by_label("Only these ranks, separated by commas").fill("1")

    expect(status).to_contain_text("1 line of")
    expect(page.locator(".log-line")).to_have_count(1)


def test_a_link_leads_to_a_line(site: Site, open_view: OpenView) -> None:
    """A link to a line shows and highlights it."""
    page = open_view(site, "trials/25/logs?attempt=1&line=900")

    expect(page.locator(".log-line.chosen")).to_contain_text("step 449")
    expect(page.locator(".log-full")).to_contain_text("Line 901")
    page.get_by_role("button", name="Link to line 903").click()

    wait_for_query(page, "line=902")


def test_a_hundred_thousand_lines_scroll(own_site: Site, open_view: OpenView) -> None:
    """A log of 100,000 lines keeps only the visible lines in the document."""
    write_log_lines(own_site.home.folder(3), 100_000)
    page = open_view(own_site, "trials/3/logs")
    expect(page.locator(".toolbar [role=status]")).to_contain_text("100,000 lines")

    page.get_by_label("Follow").check()
    expect(page.locator(".log")).to_contain_text("step 99999:")
    page.locator(".log").evaluate("element => element.scrollTop = 0")

    expect(page.locator(".log")).to_contain_text("step 0:")
    expect(page.get_by_label("Follow")).not_to_be_checked()
    assert page.locator(".log-line").count() < 200


def test_a_trial_that_does_not_exist_says_so(site: Site, open_view: OpenView) -> None:
    """A missing trial shows an error."""
    page = open_view(site, "trials/4711")

    expect(page.get_by_role("alert")).to_contain_text("deleted meanwhile")


def test_a_paused_trial_is_resumed(home: Home, open_view: OpenView, start_script: Callable[..., Script]) -> None:
    """A paused trial can be resumed and paused again by its button."""
    script = start_script(OBEDIENT)
    assert script.process.stdout is not None
    script.process.stdout.readline()
    trials.pause(home, 1, "a test")
    script.wait()
    with serving(home) as site:
        page = open_view(site, "trials/1")

        page.get_by_role("button", name="Resume").click()

        expect(page.locator(".toast")).to_contain_text("resumed trial 1 from its beginning, as its attempt 2")
        expect(page.locator(".subject-facts")).to_contain_text("2 attempts")
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert await_end(home.trial(1), 60)


def test_going_to_a_trial_asks_for_nothing_twice(site: Site, open_view: OpenView) -> None:
    """Opening a trial requests nothing twice."""
    page = open_view(site, "runs")
    expect(page.locator(".grid-row").first).to_be_visible()
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    answers: list[dict[str, Any]] = []
    session.on("Network.responseReceived", lambda event: answers.append(event["response"]))

    for trial_id in (25, 24):
        page.goto(site.address(f"trials/{trial_id}"))
        expect(page.locator(".chart").first).to_be_visible()

    asked = [answer["url"].partition("?")[0] for answer in answers if not answer.get("fromDiskCache")]
    trials = [f"{site.origin}/api/v1/trials/{trial_id}" for trial_id in (25, 24)]
    assert [url for url in asked if not url.endswith("/metrics")] == trials


def test_the_overview_shows_where_the_time_went(site: Site, open_view: OpenView) -> None:
    """A bar has the phases, beside their durations; an experiment's has those of all its trials."""
    page = open_view(site, "trials/25/overview")
    card = page.locator("section.card", has_text="Where the time went")

    expect(card.get_by_role("img")).to_have_attribute("aria-label", re.compile("% training"))
    expect(card.locator("dt", has_text="training")).to_have_count(1)
