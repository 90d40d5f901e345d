"""What the machine did while a trial ran."""

from __future__ import annotations

import re

from browser.conftest import OpenView, Site
from browser.seeing import expect, wait_for_query

from core_sdk._ground.records import Profile
from core_sdk._home.journal import encode_line


def test_figures_have_names_and_units(site: Site, open_view: OpenView) -> None:
    """Figures have names and units, and GPUs share a chart."""
    page = open_view(site, "trials/25/system")

    expect(page.get_by_role("img", name=re.compile("^Chart of GPU. GPU-0: last .* %.*GPU-1"))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^Chart of Memory, free.*GiB"))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^Chart of Network, sent.*MiB"))).to_be_visible()


def test_a_metric_of_the_trial_is_beside_them(site: Site, open_view: OpenView) -> None:
    """A metric of the trial, a validation's first, or the chosen one, is shown with the figures."""
    page = open_view(site, "trials/25/system")
    expect(page.get_by_role("img", name=re.compile("^Chart of validation."))).to_be_visible()

    page.get_by_label("Beside").select_option("training.grad_norm")
    expect(page.get_by_role("img", name=re.compile("^Chart of training.grad_norm"))).to_be_visible()
    page.get_by_label("Beside").select_option("none")

    expect(page.get_by_role("img", name=re.compile("^Chart of (training|validation)"))).to_have_count(0)


def test_all_charts_zoom_together_by_keys(site: Site, open_view: OpenView) -> None:
    """All charts zoom and move together with the keyboard."""
    page = open_view(site, "trials/25/system")
    chart = page.get_by_role("img", name=re.compile("^Chart of CPU"))

    chart.focus()
    page.keyboard.press("+")
    wait_for_query(page, "from=")
    expect(page.get_by_role("button", name="Show all")).to_have_count(8)
    first = page.evaluate("location.hash")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("first => location.hash !== first", arg=first)
    page.keyboard.press("0")

    expect(page.get_by_role("button", name="Show all")).to_have_count(0)


def test_nothing_is_drawn_where_nothing_was_measured(site: Site, open_view: OpenView) -> None:
    """A range without figures says so and links back to the whole."""
    page = open_view(site, "trials/25/system?from=900000&to=900100")

    expect(page.get_by_text("Nothing was measured in this stretch of time.")).to_be_visible()
    page.get_by_role("button", name="Show all").first.click()

    expect(page.get_by_role("img", name=re.compile("^Chart of CPU"))).to_be_visible()


def test_a_trial_without_figures_says_how_they_are_recorded(site: Site, open_view: OpenView) -> None:
    """A trial without figures shows the line that records them."""
    page = open_view(site, "trials/1/system")

    expect(page.get_by_text("ctx.profiler.on()")).to_be_visible()


def test_a_new_figure_is_on_the_screen_soon(own_site: Site, open_view: OpenView) -> None:
    """A new figure, also one with an unknown name, is soon shown."""
    page = open_view(own_site, "trials/25/system")
    expect(page.get_by_role("img", name=re.compile("^Chart of CPU"))).to_be_visible()

    trial = own_site.home.trial(25)
    at = trial.read_record().created + 1270
    with trial.journal_path(3).open("ab") as journal:
        journal.write(encode_line(Profile(time=at, group="tpu", metrics={"tpu_heat": 81.0})))

    expect(page.get_by_role("img", name=re.compile("^Chart of tpu tpu_heat"))).to_be_visible()
