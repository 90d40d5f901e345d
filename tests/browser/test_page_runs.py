"""The table of runs."""

from __future__ import annotations

import csv
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from browser.conftest import OpenView, Site, serving
from browser.sample_home import HOSTILE, write_many_trials
from browser.seeing import column, expect, rows, wait_for_query
from home.journals import append, lines, new_trial, record, report
from interfaces.server.first_look import slow_reading
from processes import wait_for

from core_sdk._home import Home
from core_sdk._home.index._database import database_lock


def test_all_trials_are_in_the_table(site: Site, open_view: OpenView) -> None:
    """All trials are listed, the newest first, and HTML in names is shown as text."""
    page = open_view(site, "runs")

    expect(page.locator(".toolbar [role=status]")).to_contain_text("34 trials")
    assert column(page, 1)[0] == "34"
    expect(page.get_by_text(HOSTILE, exact=True)).to_be_visible()


def test_a_filter_is_a_condition(site: Site, open_view: OpenView) -> None:
    """A filter reduces the table and is kept in the address."""
    page = open_view(site, "runs")
    expect(rows(page).first).to_be_visible()

    page.get_by_label("Filter", exact=True).fill("optimizer = adam and batch_size = 16")

    wait_for_query(page, "where=optimizer+=+adam")
    page.wait_for_function("() => [...document.querySelectorAll('.grid-row')].length < 34")
    assert rows(page).count() > 0


def test_a_filter_that_does_not_parse_says_where(site: Site, open_view: OpenView) -> None:
    """A filter with a syntax error marks the position, and the table stays."""
    page = open_view(site, "runs")
    expect(rows(page).first).to_be_visible()

    page.get_by_label("Filter", exact=True).fill("optimizer ~ adam")

    expect(page.locator(".filter-problem")).to_contain_text("operator")
    expect(page.locator(".filter-problem mark")).to_have_text("~")
    expect(rows(page).first).to_be_visible()


def test_a_search_between_slashes_is_a_regular_expression(site: Site, open_view: OpenView) -> None:
    """It is kept in the address; one that is none is told of, and the search can be mended."""
    page = open_view(site, "runs")
    expect(rows(page).first).to_be_visible()
    search = page.get_by_label("Search names")

    search.fill("/^(long|short) warm-up$/")
    expect(rows(page)).to_have_count(1)
    wait_for_query(page, "search=")
    search.fill("/^(long warm-up$/")
    expect(page.get_by_text("is no regular expression: missing )")).to_be_visible()
    expect(search).to_have_attribute("aria-invalid", "true")
    search.fill(r"/^RESNET-\d+ ablation$/")

    expect(rows(page)).to_have_count(8)
    expect(search).to_have_attribute("aria-invalid", "false")


def test_a_head_sorts(site: Site, open_view: OpenView) -> None:
    """A click on a column's head sorts in both directions and is kept in the address."""
    page = open_view(site, "runs?columns=id,steps")
    head = page.get_by_role("button", name="Steps")

    head.click()
    expect(page.get_by_role("columnheader", name="Steps")).to_have_attribute("aria-sort", "ascending")
    wait_for_query(page, "sort=steps")
    expect(page.locator(".grid-row").last).to_contain_text("1,200")
    head.click()

    wait_for_query(page, "sort=-steps")
    expect(page.locator(".grid-row").first).to_contain_text("1,200")


def test_groups_fold(site: Site, open_view: OpenView) -> None:
    """Groups of rows can be folded."""
    page = open_view(site, "runs?group=state&columns=id,state")
    group = page.locator(".grid-group", has_text="state: ERROR")
    expect(group).to_be_visible()
    before = rows(page).count()

    group.click()

    expect(group).to_have_attribute("aria-expanded", "false")
    assert rows(page).count() < before


def test_a_search_finds_words(site: Site, open_view: OpenView) -> None:
    """The search finds words in names, labels and hyperparameters."""
    page = open_view(site, "runs")

    page.get_by_label("Search names, labels, reasons and hyperparameters").fill("learning rate")

    expect(page.locator(".toolbar [role=status]")).to_contain_text("9 trials of 34")


def test_columns_are_chosen(site: Site, open_view: OpenView) -> None:
    """Columns can be added, moved and removed."""
    page = open_view(site, "runs?columns=id,state,steps")
    page.get_by_role("button", name="Columns", exact=True).click()
    dialog = page.get_by_role("dialog", name="Columns")

    dialog.get_by_role("checkbox", name="Attempts").check()
    dialog.get_by_role("button", name="Move steps to the left").click()
    dialog.get_by_role("checkbox", name="State").uncheck()
    dialog.get_by_role("button", name="Done").click()

    wait_for_query(page, "columns=id,steps,attempts")
    heads = page.get_by_role("columnheader").all_inner_texts()
    assert [head.strip("↑↓ \n") for head in heads[1:]] == ["ID", "Steps", "Attempts"]


def test_the_smallest_value_of_a_metric_is_a_column(site: Site, open_view: OpenView) -> None:
    """The smallest value of a metric can be a column and a sort key."""
    page = open_view(site, "runs?columns=id,training.loss&sort=min.training.loss")
    page.get_by_role("button", name="Columns", exact=True).click()
    dialog = page.get_by_role("dialog", name="Columns")
    dialog.get_by_role("checkbox", name="min.training.loss").check()
    dialog.get_by_role("button", name="Done").click()

    expect(page.get_by_role("columnheader", name="min.training.loss")).to_have_attribute("aria-sort", "ascending")
    pairs = [(float(last), float(least)) for last, least in zip(column(page, 2), column(page, 3), strict=True) if least]
    assert all(least <= last for last, least in pairs)
    assert [least for _, least in pairs] == sorted(least for _, least in pairs)


def test_a_view_is_saved_and_found_again(site: Site, open_view: OpenView) -> None:
    """A view can be saved and opened by its name after a reload."""
    page = open_view(site, "runs?where=optimizer = adam&sort=steps")
    page.get_by_role("button", name="Saved views").click()
    page.get_by_role("menuitem", name="Save this view").click()
    page.get_by_label("Name of the view").fill("adam by steps")
    page.get_by_role("button", name="Save", exact=True).click()
    page.goto(site.address("queue"))
    page.reload()
    page.goto(site.address("runs"))

    page.get_by_role("button", name="Saved views").click()
    page.get_by_role("menuitem", name="adam by steps", exact=True).click()

    wait_for_query(page, "sort=steps")
    wait_for_query(page, "where=optimizer+=+adam")


def test_views_and_the_theme_outlive_the_server(own_site: Site, open_view: OpenView) -> None:
    """Saved views and the theme survive a restart of the server."""
    page = open_view(own_site, "runs?sort=steps")
    page.get_by_role("button", name="Saved views").click()
    page.get_by_role("menuitem", name="Save this view").click()
    page.get_by_label("Name of the view").fill("by steps")
    page.get_by_role("button", name="Save", exact=True).click()
    wait_for(lambda: own_site.home.page.exists() and b"by steps" in own_site.home.page.read_bytes())
    page.get_by_role("button", name="Theme: system").click()
    wait_for(lambda: b'"light"' in own_site.home.page.read_bytes())

    with serving(own_site.home) as later:
        page = open_view(later, "runs")
        expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
        page.get_by_role("button", name="Saved views").click()
        page.get_by_role("menuitem", name="by steps", exact=True).click()
        wait_for_query(page, "sort=steps")


def test_chosen_trials_are_compared(site: Site, open_view: OpenView) -> None:
    """Chosen trials can be compared, and the address names them."""
    page = open_view(site, "runs")
    page.get_by_label("Choose 24").check()
    page.get_by_label("Choose 25").check()

    page.get_by_role("link", name="Compare").click()

    wait_for_query(page, "compare?trials=24,25")
    expect(page.get_by_role("heading", name="Comparison of 2 trials")).to_be_visible()


def test_hidden_trials_come_back(site: Site, open_view: OpenView) -> None:
    """Hidden trials are counted and can be shown again."""
    page = open_view(site, "runs")
    page.get_by_label("Choose 24").check()
    page.get_by_role("button", name="Hide").click()
    expect(page.get_by_label("Choose 24")).to_have_count(0)

    page.get_by_role("button", name="1 hidden, show").click()

    expect(page.get_by_label("Choose 24")).to_be_visible()


def test_the_table_is_saved_as_csv(site: Site, open_view: OpenView, tmp_path: Path) -> None:
    """The table can be saved as CSV with all rows, and formulas are escaped."""
    page = open_view(site, "runs?columns=id,experiment,steps")
    expect(rows(page).first).to_be_visible()

    page.get_by_role("button", name="More of the table").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="Save the table as CSV").click()
    download.value.save_as(tmp_path / "trials.csv")

    with (tmp_path / "trials.csv").open(newline="") as file:
        head, *lines = csv.reader(file)
    assert head == ["id", "experiment", "steps"]
    assert len(lines) == 34


def test_a_trial_is_deleted_after_a_question_with_its_id(own_site: Site, open_view: OpenView) -> None:
    """Deleting a trial asks first with its id."""
    page = open_view(own_site, "runs")
    page.get_by_label("Choose 24").check()
    page.get_by_role("button", name="Delete …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("for good")
    expect(dialog.locator(".ids")).to_have_text("24")

    dialog.get_by_role("button", name="Delete trial").click()

    expect(page.locator(".toast")).to_contain_text("deleted trial 24")
    expect(page.get_by_label("Choose 24")).to_have_count(0)
    assert 24 not in own_site.home.trial_ids()


def test_trials_are_labelled(own_site: Site, open_view: OpenView) -> None:
    """Labels can be added to chosen trials and are shown soon."""
    page = open_view(own_site, "runs?columns=id,label")
    page.get_by_label("Choose 24").check()
    page.get_by_label("Choose 25").check()
    page.get_by_role("button", name="Label …").click()

    page.get_by_label("New labels").fill("night run")
    page.get_by_role("button", name="Add").click()

    expect(page.locator(".grid .chip", has_text="night run")).to_have_count(2)


def test_a_trial_is_archived_and_brought_back(own_site: Site, open_view: OpenView) -> None:
    """A trial can be archived and unarchived, and the table hides archived ones."""
    page = open_view(own_site, "runs?where=id+%3E+30")
    rows(page).first.get_by_role("checkbox").click()
    page.get_by_role("button", name="Archive", exact=True).click()
    page.wait_for_function("() => document.querySelectorAll('.grid-row').length === 3")
    hidden = column(page, 1)

    page.get_by_role("button", name="More of the table").click()
    page.get_by_role("menuitem", name="Show archived ones too").click()
    page.wait_for_function("() => document.querySelectorAll('.grid-row').length === 4")
    page.goto(own_site.address("trials/34"))
    expect(page.locator(".subject .chip", has_text="archived")).to_be_visible()
    page.get_by_role("button", name="Unarchive").click()

    expect(page.get_by_role("button", name="Archive", exact=True)).to_be_visible()
    assert hidden == ["33", "32", "31"]


def test_an_experiment_is_archived_and_brought_back(own_site: Site, open_view: OpenView) -> None:
    """An experiment can be archived and unarchived, and the table hides archived ones."""
    page = open_view(own_site, "runs?kind=experiments")
    page.get_by_label("Choose 5").check()
    page.get_by_role("button", name="Archive", exact=True).click()
    expect(page.get_by_label("Choose 5")).to_have_count(0)

    page.get_by_role("button", name="With archived").click()
    expect(page.get_by_label("Choose 5")).to_be_visible()
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("Choose 5").check()
    page.get_by_role("button", name="Unarchive").click()

    expect(page.locator(".toast").last).to_contain_text("5")
    assert not own_site.home.experiment(5).read().is_archived


def test_the_table_is_steered_by_keys_only(site: Site, open_view: OpenView) -> None:
    """The table can be used with the keyboard alone."""
    page = open_view(site, "runs")
    expect(rows(page).first).to_be_visible()
    page.get_by_role("grid", name="Trials").focus()

    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    page.keyboard.press("Shift+ArrowDown")
    expect(page.locator(".grid-row.chosen")).to_have_count(2)
    page.keyboard.press("c")
    expect(page.get_by_role("heading", name="Comparison of 2 trials")).to_be_visible()
    page.go_back()
    page.get_by_role("grid", name="Trials").focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", name="Trial 34")).to_be_visible()


def test_keys_work_after_a_click_on_a_box(site: Site, open_view: OpenView) -> None:
    """A click on a row's box, on the box of all and on an eye leaves the keys with the table."""
    page = open_view(site, "runs?view=charts")
    expect(rows(page).first).to_be_visible()

    page.get_by_label("Choose all").click()
    expect(page.locator(".grid-row.chosen").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".grid-row.chosen")).to_have_count(0)
    page.get_by_label("Choose 34").click()
    page.get_by_label("Choose 33").click()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_label("Curve of trial 33").click()
    page.keyboard.press("c")

    expect(page.get_by_role("heading", name="Comparison of 2 trials")).to_be_visible()


def test_escape_goes_from_the_search_to_what_it_has_found(site: Site, open_view: OpenView) -> None:
    """In the table and in the output: the text stays, and keys move in the list."""
    for view, search, what in (
        ("runs", "Search names, labels, reasons and hyperparameters", "Trials"),
        ("trials/25/logs", "Find in the output", "Output"),
    ):
        page = open_view(site, view)
        page.get_by_label(search).fill("e")
        expect(page.get_by_role("status").filter(has_text=re.compile(r"^\d[\d,]* (trials|lines) of"))).to_be_visible()

        page.get_by_label(search).press("Escape")

        expect(page.get_by_label(what, exact=True)).to_be_focused()
        expect(page.get_by_label(search)).to_have_value("e")


def test_keys_go_to_views_and_show_themselves(site: Site, open_view: OpenView) -> None:
    """Key shortcuts open views, the list of keys and the search."""
    page = open_view(site, "runs")
    expect(rows(page).first).to_be_visible()

    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page.get_by_role("heading", name="Queue and slots")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("r")
    expect(rows(page).first).to_be_visible()
    page.keyboard.press("/")

    expect(page.get_by_label("Search names, labels, reasons and hyperparameters")).to_be_focused()


def test_thousands_of_trials_scroll(open_view: OpenView, tmp_path: Path) -> None:
    """A table of thousands of trials keeps only the visible rows in the document."""
    home = Home.create(tmp_path / "many")
    write_many_trials(home, 4_000)
    with serving(home) as site:
        page = open_view(site, "runs?columns=id,steps")
        # They are indexed before.
        expect(page.locator(".toolbar [role=status]")).to_contain_text("4,000 trials", timeout=60_000)

        page.get_by_role("grid", name="Trials").focus()
        page.keyboard.press("End")

        expect(page.get_by_role("link", name="1", exact=True)).to_be_visible()
        assert page.locator(".grid-row").count() < 100


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_an_empty_home_says_how_it_is_filled(open_view: OpenView, tmp_path: Path, theme: str) -> None:
    """An empty home shows an example of how to fill it."""
    with serving(Home.create(tmp_path / "empty")) as site:
        page = open_view(site, "runs", theme=theme)

        expect(page.get_by_role("heading", name="No trial yet.")).to_be_visible()
        expect(page.get_by_text("report_training_metrics")).to_be_visible()


def test_names_with_a_comma_are_names(home: Home, open_view: OpenView) -> None:
    """Names with commas work as columns, charts and sort keys."""
    numbers: list[dict[str, Any]] = [{"top,1": 0.5}, {"top,1": 0.75}]
    for lr in (0.1, 0.2):
        record(new_trial(home, "commas", **{"a,b": lr}), report(1, **numbers[0]), report(2, **numbers[1]))
    with serving(home) as site:
        page = open_view(site, "runs?columns=id,a%5C,b,training.top%5C,1,label&sort=-a,b")
        page.wait_for_function("() => document.querySelectorAll('.grid-row:not(.waiting)').length === 2")
        table = [column(page, number) for number in (1, 2, 3)]
        page.get_by_label("Choose 2").check()
        page.get_by_role("button", name="Label …").click()
        page.get_by_label("New labels").fill("x\\, y, z")
        page.get_by_role("button", name="Add").click()
        expect(page.locator(".grid .chip")).to_have_text(["x, y", "z"])
        page.goto(site.address("trials/1"))
        expect(page.get_by_role("img", name="Chart of training.top,1")).to_have_attribute(
            "aria-label", re.compile("highest 0.75")
        )
        page.goto(site.address("compare?trials=1,2"))
        expect(page.get_by_role("img", name="top,1")).to_be_visible()

    assert table == [["2", "1"], ["0.2", "0.1"], ["0.75", "0.75"]]


def test_the_page_says_how_far_the_records_are_read(home: Home, open_view: OpenView) -> None:
    """While records are being read, the page says so, and then shows the view."""
    for _ in range(3):
        record(new_trial(home), report(1, loss=1.0))
    with ExitStack() as held:
        held.enter_context(database_lock(home.database))
        with serving(home) as site:
            page = open_view(site, "runs")
            expect(page.get_by_role("heading", name="Reading the records")).to_be_visible()

            held.close()

            expect(rows(page)).to_have_count(3)


@pytest.mark.parametrize("view", ["runs?view=charts", "trials/1"])
def test_what_is_read_already_is_shown(home: Home, open_view: OpenView, view: str) -> None:
    """The newest trials first, with their charts; the others come as they are read, also where one is looked at."""
    with slow_reading(home) as go_on, serving(home) as site:
        page = open_view(site, view)
        expect(page.get_by_role("note")).to_contain_text("2 of 4 trials")
        if view == "trials/1":
            expect(page.get_by_role("alert")).to_contain_text("this is not read yet")
        else:
            expect(rows(page)).to_have_count(2)
            expect(page.locator(".chart-value")).to_have_count(2)

        go_on.set()

        expect(page.get_by_role("note")).to_have_count(0)
        expect(page.locator(".chart-value")).to_have_count(1 if view == "trials/1" else 4)


def test_records_that_cannot_be_read_are_named(
    home: Home, open_view: OpenView, caplog: pytest.LogCaptureFixture
) -> None:
    """Unreadable records are named, and all others are shown."""
    record(new_trial(home), report(1, loss=1.0))
    damaged = new_trial(home)
    (damaged.path / "trial.json").write_bytes(b"{broken")
    with serving(home) as site:
        page = open_view(site, "runs")

        expect(page.get_by_role("note")).to_contain_text("1 record cannot be read")
        expect(page.get_by_role("note")).to_contain_text("runs/2")
        append(home.trial(1), 1, lines(report(2, loss=0.5)))
        expect(rows(page)).to_contain_text("0.5")
        page.goto(site.address("trials/2"))
        expect(page.get_by_role("alert")).to_contain_text("trial.json cannot be read")

    assert [entry.message.count("is left out") for entry in caplog.records] == [1]
