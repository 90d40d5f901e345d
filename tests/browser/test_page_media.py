"""Images, audio and other media of a trial, and of several side by side. Nothing of what they hold runs in the page."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from browser.conftest import OpenView, Site, serving
from browser.sample_home import HOSTILE
from browser.seeing import expect, wait_for_query
from home.journals import START, new_trial, record

import core_sdk.compat.wandb as wandb
from core_sdk import media
from core_sdk._ground.records import Report
from core_sdk._home import Home

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page


def card(page: Page, title: str) -> Locator:
    """Returns the card with this title."""
    return page.locator(".medium", has=page.locator(".chart-title", has_text=re.compile(f"^{re.escape(title)}$")))


def set_step(page: Page, index: int) -> None:
    page.get_by_role("slider", name="Step").fill(str(index))


def pixels(card: Locator) -> list[int]:
    """Returns the first column of pixels of the shown picture."""
    found: list[int] = card.locator("img").evaluate("""async (image) => {
        await image.decode();
        const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight);
        const context = canvas.getContext("2d");
        context.drawImage(image, 0, 0);
        return [...context.getImageData(0, 0, 1, canvas.height).data].filter((_, index) => index % 4 === 0);
    }""")
    return found


def test_a_slider_shows_the_media_of_each_step(site: Site, open_view: OpenView) -> None:
    """A slider selects the step of media, at first the last one, and the address keeps it."""
    page = open_view(site, "trials/25/media")
    samples = card(page, "samples")
    expect(samples).to_contain_text("step 1200")
    last = pixels(samples)

    set_step(page, 0)

    expect(samples).to_contain_text("step 100")
    assert pixels(samples) != last
    assert page.get_by_role("slider", name="Step").get_attribute("max") == "11"
    wait_for_query(page, "step=100")
    page.get_by_role("slider", name="Step").press("ArrowRight")
    expect(samples).to_contain_text("step 200")
    expect(samples).to_contain_text("sampled at step 200")


def test_superseded_media_are_shown_when_asked_for_and_marked(site: Site, open_view: OpenView) -> None:
    """Superseded media are hidden until they are asked for, and are then marked."""
    page = open_view(site, "trials/25/media?step=500")
    expect(card(page, "tone")).to_contain_text("step 400")

    page.get_by_label("Superseded").check()

    expect(card(page, "tone")).to_contain_text("step 500, superseded, attempt 1")
    expect(card(page, "samples")).to_contain_text("step 500")
    expect(card(page, "samples")).not_to_contain_text("superseded")
    wait_for_query(page, "replaced=1")


def test_media_of_several_trials_stand_side_by_side(site: Site, open_view: OpenView) -> None:
    """Media of several trials are shown side by side."""
    page = open_view(site, "compare/media?trials=23,25")

    section = page.get_by_role("region", name="validation.samples")
    expect(section.locator(".chart-title")).to_have_text(["Trial 25"])


def test_audio_and_video_play(site: Site, open_view: OpenView) -> None:
    """Audio and video can be played."""
    page = open_view(site, "trials/25/media")

    for kind, title in (("audio", "tone"), ("video", "rollout")):
        player = card(page, title).locator(kind)
        expect(player).to_be_visible()
        played = player.evaluate("""async (player) => {
            player.muted = true;
            await player.play();
            await new Promise((resolve) => player.addEventListener("timeupdate", resolve, { once: true }));
            return [player.error, player.duration];
        }""")
        assert played == [None, pytest.approx(0.5)]


def test_a_table_sorts_and_filters(site: Site, open_view: OpenView) -> None:
    """A media table can be sorted by value and filtered."""
    page = open_view(site, "trials/25/media")
    table = card(page, "worst")
    cells = table.locator("tbody td:nth-child(2)")

    table.get_by_role("button", name="loss").click()
    expect(cells).to_have_text(["2.5", "10", "171.4"])
    table.get_by_role("button", name="loss").click()
    expect(cells).to_have_text(["171.4", "10", "2.5"])
    table.get_by_role("searchbox").fill("mild")

    expect(cells).to_have_text(["2.5"])
    expect(table).to_contain_text("1 of 3 rows")


def test_a_text_shows_how_it_differs_from_the_step_before(site: Site, open_view: OpenView) -> None:
    """A text can show its difference to the previous step."""
    page = open_view(site, "trials/25/media")
    text = card(page, "generated")
    expect(text).to_contain_text("is of step 1200")

    text.get_by_label("Difference to the step before").check()

    expect(text.locator(".diff-removed")).to_have_text(re.compile("is of step 1100"))
    expect(text.locator(".diff-added")).to_have_text(re.compile("is of step 1200"))


def test_histograms_and_matrices_tell_what_they_show(site: Site, open_view: OpenView) -> None:
    """Histograms and confusion matrices have descriptions for screen readers."""
    page = open_view(site, "trials/25/media")

    expect(page.get_by_role("img", name=re.compile("Histogram of 500 values from -"))).to_be_visible()
    expect(page.get_by_role("img", name="The histograms of 12 steps beside each other")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("Confusion matrix of 3 classes: . of 6 are right"))).to_be_visible()


def test_content_is_saved_under_a_name_that_says_what_it_is(site: Site, open_view: OpenView, tmp_path: Path) -> None:
    """A medium is saved under a descriptive name with its original bytes."""
    page = open_view(site, "trials/25/media")

    with page.expect_download() as downloading:
        page.get_by_role("button", name="Save generated").click()
    downloading.value.save_as(tmp_path / "saved")

    assert downloading.value.suggested_filename == "validation_generated_step1200.txt"
    assert b"is of step 1200" in (tmp_path / "saved").read_bytes()


PROBE = """<!doctype html><p>ran</p><script>
const found = {};
const attempt = (name, act) => { try { found[name] = String(act()); } catch (error) { found[name] = error.name; } };
attempt("title", () => (parent.document.title = "hacked"));
attempt("page", () => parent.document.body.innerText);
attempt("storage", () => parent.sessionStorage.length);
attempt("own storage", () => sessionStorage.length);
attempt("origin", () => self.origin);
attempt("top", () => { top.location = "EVIL/top"; return "asked"; });
attempt("window", () => open("EVIL/window"));
new Image().src = "EVIL/picture";
const asked = ["/api/v1/home", "EVIL/fetch"].map((url) => fetch(url).then(() => "read", () => "blocked"));
Promise.all(asked).then((answers) => {
  found.network = answers.join();
  document.title = JSON.stringify(found);
});
</script>"""


@pytest.fixture
def evil() -> Iterator[tuple[str, list[str]]]:
    """Yields the address of another server and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("access-control-allow-origin", "*")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def test_html_runs_after_a_click_in_a_frame_that_reaches_nothing(
    site: Site, browser: Browser, evil: tuple[str, list[str]]
) -> None:
    """HTML runs only after a click, in a frame without access to page, storage, server or network."""
    address, asked = evil
    context = browser.new_context()
    page = context.new_page()
    page.goto(site.entrance)
    page.wait_for_url(f"{site.origin}/")
    # The server refuses a file that was altered: this answer stands for a hostile run's.
    probe = PROBE.replace("EVIL", address)
    page.route("**/media/*.html", lambda route: route.fulfill(body=probe, content_type="text/plain"))
    page.goto(site.address("trials/25/media?search=surface"))
    expect(page.get_by_text("a browser may let them reach the network")).to_be_visible()
    assert len(page.frames) == 1
    page.get_by_role("button", name="Run it").click()
    expect(page.frame_locator("iframe.medium-frame").get_by_text("ran")).to_be_visible()
    framed = page.frames[1]
    framed.wait_for_function("() => document.title.includes('network')")
    found: dict[str, Any] = framed.evaluate("() => JSON.parse(document.title)")

    with page.expect_event("framenavigated"):
        framed.evaluate("address => { location = address; }", f"{address}/frame")
    urllib.request.urlopen(f"{address}/last").close()

    assert found["title"] == found["page"] == found["storage"] == found["own storage"] == "SecurityError"
    assert (found["origin"], found["window"], found["network"]) == ("null", "null", "blocked,blocked")
    assert page.title() != "hacked"
    assert page.url.startswith(site.origin)
    assert asked == ["/last"]
    context.close()


def test_pictures_run_nothing(site: Site, open_view: OpenView) -> None:
    """An SVG with a script is shown as a picture, and a hostile caption as text; `open_view` sees if any had run."""
    page = open_view(site, "trials/25/media")

    image = card(page, "attention").locator("img")
    expect(image).to_be_visible()
    expect(card(page, "attention").locator(".medium-caption")).to_have_text(HOSTILE)
    assert image.evaluate("async (image) => { await image.decode(); return image.naturalWidth; }") == 80
    card(page, "surface").get_by_role("button", name="Run it").click()
    expect(card(page, "surface").locator("iframe")).to_have_attribute("sandbox", "allow-scripts")
    expect(page.frame_locator("iframe.medium-frame").get_by_text("a figure at 1200")).to_be_visible()


def test_damage_is_shown_in_its_place(own_site: Site, open_view: OpenView) -> None:
    """A damaged medium shows an error in its place, and others are shown."""
    for path in own_site.home.folder(25).media_path.glob("*.svg"):
        path.write_bytes(b"<svg/>")
    page = open_view(own_site, "trials/25/media")

    expect(card(page, "attention").get_by_role("alert")).to_contain_text("SHA-256")
    expect(card(page, "samples").locator("img")).to_be_visible()


@pytest.mark.parametrize(
    ("plot", "axes"),
    [
        (wandb.plot.pr_curve, "precision against recall"),
        (wandb.plot.roc_curve, "true positive rate against false positive rate"),
    ],
)
def test_rates_of_a_classifier_are_curves(
    tmp_path: Path, open_view: OpenView, plot: Callable[..., wandb.Table], axes: str
) -> None:
    """Of each class, above their table; the name of a class is text."""
    home = Home.create(tmp_path / "home")
    folder = new_trial(home)
    drawn = plot([0, 1, 1, 0], [[0.9, 0.1], [0.4, 0.6], [0.6, 0.4], [0.7, 0.3]], labels=["cat", HOSTILE])
    table = media.Table(drawn.data, drawn.columns)
    folder.media_path.mkdir()
    (folder.media_path / table.file.name).write_bytes(table.content)
    record(
        folder, Report(START, "training", 1, {}, json_metrics={"rates": {"$media": msgspec.to_builtins(table.file)}})
    )
    with serving(home) as site:
        page = open_view(site, "trials/1/media")
        curves = card(page, "rates").get_by_role("img", name=f"{axes}, cat, {HOSTILE}")

        expect(curves.locator(".rate-curve")).to_have_count(2)
        expect(card(page, "rates").locator(".legend li")).to_have_text(["cat", HOSTILE])
        expect(card(page, "rates").get_by_role("columnheader", name="class")).to_be_visible()
