"""One experiment, comparisons and the queue."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser.conftest import OpenView, Site, serving
from browser.seeing import expect, open_settings, rows, wait_for_query
from home.journals import START, new_trial, record, report, vary

from core_sdk._execution.steering import experiments, trials
from core_sdk._ground.records import CodeRecord, Settled, StudyRecord
from core_sdk._home import Home


def test_notes_are_markdown_without_anything_that_runs(site: Site, open_view: OpenView) -> None:
    """HTML in notes is shown as text, and links open safely."""
    page = open_view(site, "experiments/2")
    notes = page.locator(".markdown")

    expect(notes.get_by_role("heading", name="What we look for")).to_be_visible()
    expect(notes.get_by_role("link", name="the paper")).to_have_attribute("rel", "noopener noreferrer")
    expect(notes).to_contain_text("<script>document.title = 'hacked'</script>")
    expect(notes.get_by_role("row")).to_have_text(["warm-upaccuracy", "1000.93", "5000.97"])
    assert notes.locator("script, img").count() == 0


def test_notes_are_edited(own_site: Site, open_view: OpenView) -> None:
    """Edited notes are saved and shown at once."""
    page = open_view(own_site, "experiments/2")
    page.get_by_role("button", name="Edit").click()

    page.get_by_label("Notes in Markdown").fill("# Done\n\nIt *works*.")
    page.get_by_role("button", name="Save").click()

    expect(page.locator(".markdown h1")).to_have_text("Done")
    assert own_site.home.experiment(2).read().notes.startswith("# Done")


def test_notes_that_two_tabs_edit_are_both_kept(own_site: Site, open_view: OpenView) -> None:
    """The tab that saves second is told so, shows both texts, and saves its own only when it is asked again."""
    page = open_view(own_site, "experiments/2")
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Notes in Markdown").fill("of this tab")
    experiments.describe(own_site.home, 2, notes="of the other tab")

    page.get_by_role("button", name="Save").click()

    expect(page.get_by_role("alert")).to_contain_text("nothing was saved")
    expect(page.get_by_label("Their text")).to_have_value("of the other tab")
    expect(page.get_by_label("Notes in Markdown")).to_have_value("of this tab")
    assert own_site.home.experiment(2).read().notes == "of the other tab"
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".markdown")).to_have_text("of this tab")
    assert own_site.home.experiment(2).read().notes == "of this tab"


def test_an_overview_begins_with_the_curves_of_the_best_trials(site: Site, open_view: OpenView) -> None:
    """The overview begins with the curves of the best trials."""
    page = open_view(site, "experiments/2")
    chart = page.get_by_role("img", name=re.compile("^Chart of validation.loss, the best 9 of 9 trials"))

    expect(chart).to_be_in_viewport()
    expect(page.locator(".pane > :first-child")).to_have_class("chart")


def test_a_search_shows_its_rungs_and_brackets(site: Site, open_view: OpenView) -> None:
    """A search shows its rungs, brackets and trials."""
    page = open_view(site, "experiments/5/search")

    expect(page.get_by_role("img", name=re.compile("^Chart of loss by epochs"))).to_be_visible()
    expect(page.get_by_role("heading", name=re.compile("Bracket 1"))).to_be_visible()
    expect(page.get_by_role("region", name="Trials of the search").get_by_role("row")).to_have_count(10)
    expect(page.get_by_text("the best: trial")).to_be_visible()


def test_learning_curves_of_the_best_trials_lie_over_each_other(site: Site, open_view: OpenView) -> None:
    """The learning curves of the best trials share a chart, as many as are chosen."""
    page = open_view(site, "experiments/5/curves")
    values = page.locator(".chart").first.locator(".chart-value")
    expect(values).to_have_count(9)
    best = page.locator(".subject-facts a", has_text="trial").inner_text().removeprefix("trial ")

    open_settings(page)
    page.get_by_label("Curves", exact=True).select_option("1")

    expect(values).to_have_count(1)
    expect(page.get_by_role("button", name="Curve of trial", pressed=True)).to_have_attribute(
        "aria-label", f"Curve of trial {best}"
    )
    wait_for_query(page, "top=1")


@pytest.mark.parametrize(
    ("picture", "description"),
    [
        ("Parallel coordinates", "Parallel coordinates of 9 trials"),
        ("Scatter plots", "Scatter plot of smallest validation.loss against learning_rate, 9 trials"),
        ("Scatter matrix", "Scatter plot of width against learning_rate, 9 trials"),
        ("Heat map", "Heat map"),
    ],
)
def test_hyperparameters_have_pictures(site: Site, open_view: OpenView, picture: str, description: str) -> None:
    """Each picture of hyperparameters has a description for screen readers."""
    page = open_view(site, "experiments/5/hyperparameters")

    page.get_by_role("button", name=picture, exact=True).click()

    expect(page.get_by_role("img", name=re.compile(description)).first).to_be_visible()


def test_a_picture_is_saved_as_svg(site: Site, open_view: OpenView, tmp_path: Path) -> None:
    """A picture is saved as SVG with its colours and without class names."""
    page = open_view(site, "experiments/5/hyperparameters")
    page.get_by_role("button", name="Export Parallel coordinates").click()

    with page.expect_download() as download:
        page.get_by_role("menuitem", name="Save as SVG").click()
    download.value.save_as(tmp_path / "picture.svg")

    text = (tmp_path / "picture.svg").read_text()
    assert text.startswith("<svg")
    assert "class=" not in text


def test_ranges_of_parallel_coordinates_are_chosen_by_keys(site: Site, open_view: OpenView) -> None:
    """Ranges of parallel coordinates can be set with the keyboard."""
    page = open_view(site, "experiments/5/hyperparameters")
    slider = page.get_by_label("Upper end of smallest validation.loss")

    slider.focus()
    for _ in range(60):
        page.keyboard.press("ArrowLeft")

    expect(page.locator(".coordinate.outside").first).to_be_attached()
    expect(page.get_by_role("button", name="All trials")).to_be_enabled()


def test_axes_of_hyperparameters_are_those_of_the_configuration(site: Site, open_view: OpenView) -> None:
    """Their ends, their logarithm and the order of their values, with ticks at round numbers."""
    page = open_view(site, "experiments/5/hyperparameters")

    ticks = page.locator(".axis-tick")
    expect(ticks.filter(has_text=re.compile("^(1e-4|0.001|0.01|0.1)$"))).to_have_text(["1e-4", "0.001", "0.01", "0.1"])
    expect(ticks.filter(has_text="elu")).to_have_text(["relu", "gelu"])


def test_importance_is_told_in_figures(site: Site, open_view: OpenView) -> None:
    """The importance of each hyperparameter is shown in percent."""
    page = open_view(site, "experiments/5/hyperparameters?picture=importance")

    expect(page.get_by_role("row", name=re.compile(r"learning_rate.*%"))).to_be_visible()


def test_trials_of_an_experiment_have_the_same_table(site: Site, open_view: OpenView) -> None:
    """The trials of an experiment are shown in the same kind of table."""
    page = open_view(site, "experiments/5/trials")

    expect(page.locator(".toolbar [role=status]")).to_have_text("9 trials")


def test_configuration_and_code_are_shown(site: Site, open_view: OpenView) -> None:
    """Configuration and code are shown, also with defaults and differences."""
    page = open_view(site, "experiments/5/code")
    expect(page.locator(".source")).to_contain_text("max_restarts: 0")

    page.get_by_role("button", name="As written").click()
    expect(page.locator(".source")).to_contain_text("# How fast may it learn?")
    page.get_by_role("button", name="What the defaults add").click()
    expect(page.locator(".difference .diff-added").first).to_be_visible()
    page.get_by_role("button", name="Code", exact=True).click()

    expect(page.get_by_label("train.py")).to_contain_text("report_validation_metrics")


def test_trials_are_compared(site: Site, open_view: OpenView) -> None:
    """A comparison has common charts, and values that differ are marked."""
    page = open_view(site, "compare?trials=22,23,25")
    expect(page.get_by_role("img", name=re.compile("Chart of validation.loss.*22.*23.*25"))).to_be_visible()

    page.get_by_role("link", name="Values and hyperparameters").click()

    expect(page.locator("tr.differs", has_text="model.layers")).to_be_visible()
    page.get_by_role("link", name="Configurations").click()
    expect(page.locator(".difference")).to_contain_text("lr:")


def test_trials_are_points_of_a_metric_against_a_hyperparameter(tmp_path: Path, open_view: OpenView) -> None:
    """Or against another metric's value; each point leads to its trial, and what has no value is told of."""
    home = Home.create(tmp_path / "home")
    for lr in (0.1, 0.01, 0.001):
        folder = new_trial(home, lr=lr, seed=1)
        record(folder, report(1, loss=lr), report(2, loss=2 * lr), report(2, "validation", accuracy=1 - lr))
    record(new_trial(home), report(1, loss=3.0))
    with serving(home) as site:
        page = open_view(site, "compare?trials=1,2,3,4")

        page.get_by_role("link", name="Scatter plot").click()
        page.get_by_label("Up").select_option("validation.accuracy")

        plot = page.get_by_role("img", name="Scatter plot of last validation.accuracy against lr, 3 trials")
        expect(plot.locator("circle")).to_have_count(3)
        expect(page.get_by_text("Left out: 1 trial without both values.")).to_be_visible()
        page.get_by_label("Across").select_option("training.loss")
        page.get_by_label("Up").select_option("min.training.loss")
        wait_for_query(page, "across=training.loss")
        wait_for_query(page, "up=min.training.loss")
        every = page.get_by_role("img", name="of smallest training.loss against last training.loss, 4 trials")
        expect(every.locator("circle")).to_have_count(4)
        every.locator("circle", has_text="trial 3").click()
        page.wait_for_url("**/trials/3")


def test_a_comparison_without_trials_leads_to_the_table(site: Site, open_view: OpenView) -> None:
    """A comparison without trials links to the table of runs."""
    page = open_view(site, "compare")

    expect(page.get_by_role("link", name="Choose them in the table of runs")).to_be_visible()


def test_the_queue_says_whether_a_master_runs(site: Site, open_view: OpenView) -> None:
    """The queue says whether a master runs and shows the machine's slots."""
    page = open_view(site, "queue")

    expect(page.get_by_text("No master runs")).to_be_visible()
    expect(page.get_by_role("heading", name="Slots of this machine")).to_be_visible()


def test_a_page_that_only_reads_offers_no_actions(own_site: Site, open_view: OpenView) -> None:
    """A read-only page says so and offers no actions."""
    with serving(own_site.home, can_act=False) as site:
        page = open_view(site, "trials/25")

        expect(page.get_by_text("This page can only read.")).to_be_visible()
        assert page.get_by_role("button", name="Delete …").count() == 0


def test_a_server_that_went_away_is_told_of(own_site: Site, open_view: OpenView) -> None:
    """If the server is gone, the page says so and keeps what it shows."""
    with serving(own_site.home) as site:
        page = open_view(site, "trials/25")
        expect(page.locator(".connection-live")).to_be_visible()

    expect(page.locator(".connection-interrupted")).to_have_text("Server does not answer")
    expect(page.get_by_role("heading", name="Trial 25")).to_be_visible()
    page.goto(site.address("experiments/2"))
    expect(page.get_by_role("status", name="Loading again").first).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(1)


def test_a_question_that_did_not_reach_the_server_is_asked_again(site: Site, open_view: OpenView) -> None:
    """A request that fails is repeated by the page itself."""
    page = open_view(site, "queue")
    expect(page.locator(".connection-live")).to_be_visible()
    page.route("**/api/v1/comparison/metrics?*", lambda route: route.abort())
    page.goto(site.address("trials/25"))
    expect(page.get_by_text("The page asks again by itself.").first).to_be_visible()

    page.unroute("**/api/v1/comparison/metrics?*")

    expect(page.get_by_role("img", name=re.compile("^Chart of training.loss"))).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_page_that_was_cut_off_hears_of_what_comes_afterwards(own_site: Site, open_view: OpenView) -> None:
    """A page whose event stream failed reconnects by itself and shows new data."""
    page = open_view(own_site, "runs")
    expect(page.locator(".connection-live")).to_be_visible()
    page.route("**/api/v1/events", lambda route: route.fulfill(status=503, body="{}"))
    page.goto(own_site.address("queue"))
    page.reload()
    expect(page.locator(".connection-refused")).to_be_visible()
    page.unroute("**/api/v1/events")

    expect(page.locator(".connection-live")).to_be_visible()
    page.goto(own_site.address("runs?where=id > 34"))
    expect(rows(page)).to_have_count(0)
    record(new_trial(own_site.home), report(1, loss=0.5))

    expect(rows(page)).to_have_count(1)


def test_variations_stand_below_what_they_vary(own_site: Site, open_view: OpenView) -> None:
    """The tree of variations has what each was to show, what it reached and what was decided."""
    first, second = (new_trial(own_site.home, "idea") for _ in range(2))
    vary(second, first.trial_id, "a larger rate")
    for folder, loss in ((first, 0.5), (second, 0.25)):
        record(folder, report(1, "validation", loss=loss))
    trials.describe(own_site.home, second.trial_id, verdict="keep", verdict_reason="half the loss")
    experiment_id = first.read_record().experiment_id
    page = open_view(own_site, f"experiments/{experiment_id}/variations")

    row = page.get_by_role("region", name="Variations").get_by_role("row").last

    expect(row).to_contain_text("✓ keep half the loss")
    expect(row).to_contain_text("a larger rate")
    expect(row).to_contain_text("0.25")
    row.get_by_role("link").click()
    page.get_by_role("link", name="Overview").click()
    expect(page.locator(".card", has_text="Varies")).to_contain_text("keep: half the loss")
    page.get_by_role("link", name=f"trial {first.trial_id}", exact=True).click()
    page.get_by_role("link", name="Overview").click()
    expect(page.locator(".card", has_text="Started")).not_to_contain_text("Varies")


def test_a_study_has_the_tree_of_its_tries_and_the_best_over_time(own_site: Site, open_view: OpenView) -> None:
    """Each try stands below the one that it varies, with its difference to that, and what was decided."""
    parent = None
    for hypothesis, values in (("as it is", (0.80, 0.81)), ("a larger rate", (0.90, 0.91))):
        folders = [new_trial(own_site.home, "rates") for _ in values]
        for seed, (folder, value) in enumerate(zip(folders, values, strict=True)):
            vary(folder, parent, hypothesis)
            trial = folder.read_record()
            trial.try_id, trial.seed, trial.code = folders[0].trial_id, seed, CodeRecord(sha256="a" * 64)
            folder.write_record(trial)
            record(folder, report(1, "validation", accuracy=value))
            folder.append_change(Settled(time=START + folder.trial_id, state="COMPLETED", reason="", attempt=1))
        parent = folders[0].trial_id
    with own_site.home.find_or_create_experiment("rates").edit() as experiment:
        experiment.study = StudyRecord(directory="/work", best_by="max.accuracy")
    page = open_view(own_site, f"experiments/{experiment.experiment_id}")

    page.get_by_role("link", name="Study").click()
    row = page.get_by_role("region", name="Tries").get_by_role("row").last

    expect(row).to_contain_text("a larger rate")
    expect(row).to_contain_text("beyond noise better")
    expect(page.get_by_text("accuracy by seconds since the first try")).to_be_visible()
