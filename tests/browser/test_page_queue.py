"""The queue and the slots."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer

import msgspec
from browser.conftest import OpenView, Site, serving
from browser.seeing import expect
from masters import running_master

from core_sdk._execution.experiments.calling import call, socket_address
from core_sdk._execution.experiments.protocol import (
    ClusterStatus,
    ExperimentStatus,
    GetStatus,
    MasterStatus,
    NodeStatus,
    RunningTrial,
)
from core_sdk._execution.experiments.submission import submit
from core_sdk._ground.typed_lines import to_line
from core_sdk._home import Home

_TRAIN = """\
import time

import core_sdk

with core_sdk.core.init() as ctx:
    while not ctx.preempt.should_preempt():
        time.sleep(0.01)
"""
_CONFIG = f"""\
name: NAME
entrypoint: {sys.executable} train.py
searcher: {{name: single, metric: loss, smaller_is_better: true, max_length: {{batches: 1}}}}
max_restarts: 0
"""


@contextmanager
def _two_experiments(directory: Path) -> Iterator[Site]:
    """Serves a home in which one experiment runs and another one waits for the only slot."""
    model = directory / "model"
    model.mkdir()
    (model / "train.py").write_text(_TRAIN)
    home = Home.create(directory / "home")
    with running_master(home, num_slots=1), serving(home) as site:
        for name in ("earlier", "later"):
            submit(home, _CONFIG.replace("NAME", name), source="a test", model_dir=model)
        yield site


@contextmanager
def _answering(home: Home, status: MasterStatus) -> Iterator[None]:
    """Answers in the place of a master with this status."""

    class Answer(StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(to_line({"ok": True, **msgspec.to_builtins(status)}))

    with socket_address(home.root) as address, ThreadingUnixStreamServer(address, Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield
        server.shutdown()
        thread.join()


def _names(site: Site) -> list[tuple[int, int]]:
    """Returns the priorities and ids of the master's experiments."""
    experiments = call(site.home.root, GetStatus()).experiments
    return sorted((one.priority, one.experiment_id) for one in experiments)


def test_the_queue_says_that_no_master_runs(site: Site, open_view: OpenView) -> None:
    """Without a master the queue says so and shows the machine's slots."""
    page = open_view(site, "queue")

    expect(page.get_by_text("No master runs")).to_be_visible()
    expect(page.get_by_text("No experiment waits or runs.")).to_be_visible()
    expect(page.locator(".slots li").first).to_contain_text("free")


def test_the_queue_shows_who_runs_and_who_waits(open_view: OpenView, tmp_path: Path) -> None:
    """The queue shows running and waiting trials in order, with links."""
    with _two_experiments(tmp_path) as site:
        page = open_view(site, "queue")
        rows = page.get_by_role("region", name="Queue").locator("tbody tr")

        expect(page.locator(".slots li.busy")).to_contain_text("trial 1")
        expect(rows.nth(0)).to_contain_text("earlier")
        expect(rows.nth(1)).to_contain_text("none")
        expect(page.get_by_text("1 of 1 slot busy · 1 trial waiting")).to_be_visible()
        page.locator(".slots").get_by_role("link", name="trial 1").click()

        expect(page.get_by_role("heading", name="Trial 1")).to_be_visible()


def test_a_priority_changes_the_order(open_view: OpenView, tmp_path: Path) -> None:
    """Changing a priority changes the order; invalid input and Escape change nothing."""
    with _two_experiments(tmp_path) as site:
        page = open_view(site, "queue")
        field = page.get_by_role("textbox", name="Priority of experiment 2")

        field.fill("100")
        field.press("Enter")
        expect(field).to_have_value("42")
        field.fill("3")
        field.press("Escape")
        expect(field).to_have_value("42")
        field.fill("7")
        field.press("Enter")

        expect(page.get_by_role("region", name="Queue").locator("tbody tr").first).to_contain_text("later")
        assert _names(site) == [(7, 2), (42, 1)]


def test_the_most_slots_are_limited_and_unlimited(open_view: OpenView, tmp_path: Path) -> None:
    """The most slots of an experiment can be limited and unlimited."""
    with _two_experiments(tmp_path) as site:
        page = open_view(site, "queue")
        field = page.get_by_role("textbox", name="Most slots of experiment 2")

        field.fill("1")
        field.press("Enter")
        expect(page.locator(".toast").last).to_contain_text("changed the settings of experiment 2")
        expect(field).to_have_value("1")
        field.fill("")
        field.press("Enter")

        expect(field).to_have_value("")
        expect(field).to_have_attribute("placeholder", "all")
        page.wait_for_function("() => document.querySelectorAll('.toast').length === 2")
        assert [one.max_slots for one in call(site.home.root, GetStatus()).experiments] == [None, None]


def test_an_experiment_is_paused_resumed_and_killed_by_keys_only(open_view: OpenView, tmp_path: Path) -> None:
    """An experiment can be paused, resumed and killed with the keyboard; killing asks first."""
    with _two_experiments(tmp_path) as site:
        page = open_view(site, "queue")
        menu = page.get_by_role("button", name="Actions on experiment 2")
        row = page.get_by_role("region", name="Queue").locator("tbody tr").nth(1)

        menu.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("menuitem", name="Pause")).to_be_focused()
        page.keyboard.press("Enter")
        expect(row).to_contain_text("Paused")
        menu.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("menuitem", name="Resume")).to_be_focused()
        page.keyboard.press("Enter")
        expect(row).to_contain_text("Active")
        menu.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("menuitem", name="Pause")).to_be_focused()
        page.keyboard.press("End")
        expect(page.get_by_role("menuitem", name="Kill …")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_contain_text("2")
        page.get_by_role("button", name="Kill experiment").focus()
        page.keyboard.press("Enter")

        expect(row).to_have_count(0)


def test_a_page_that_only_reads_has_no_menus(open_view: OpenView, tmp_path: Path) -> None:
    """A read-only page shows the queue without menus or fields."""
    with _two_experiments(tmp_path) as site, serving(site.home, can_act=False) as reading:
        page = open_view(reading, "queue")

        expect(page.get_by_role("region", name="Queue").locator("tbody tr")).to_have_count(2)
        expect(page.get_by_role("button", name=re.compile("Actions on"))).to_have_count(0)
        expect(page.get_by_role("textbox", name="Priority of experiment 2")).to_have_count(0)


def test_the_slots_of_a_ray_cluster_are_shown(home: Home, open_view: OpenView) -> None:
    """The slots of Ray clusters are shown by node, a cluster that is away says so, and Slurm is called Slurm."""
    Home.create(home.root)
    running = (RunningTrial(31, (0,), ("node-7",)),)
    nodes = NodeStatus("node-7", 2, "GPU"), NodeStatus("node-8", 1, "CPU")
    status = MasterStatus(
        version="0",
        pid=os.getpid(),
        num_slots=1,
        gpus=(),
        experiments=(ExperimentStatus(3, "ACTIVE", 42, None, cluster="ray:1", running=running),),
        clusters=(ClusterStatus("ray:1", nodes=nodes), ClusterStatus("ray:2", "away"), ClusterStatus("slurm")),
    )
    with _answering(home, status), serving(home) as site:
        page = open_view(site, "queue")
        cluster = page.locator("section.card", has_text="ray:1")

        expect(cluster.get_by_role("heading", name="node-7 1 of 2 slots busy")).to_be_visible()
        expect(cluster.locator(".slots li")).to_have_text(
            [re.compile("GPU 0.*trial 31.*experiment 3"), re.compile("GPU 1.*free"), re.compile("CPU 0.*free")]
        )
        expect(page.locator("section.card", has_text="ray:2")).to_contain_text("away")
        expect(page.get_by_role("heading", name="Slurm", exact=True)).to_be_visible()
        expect(page.get_by_text("1 of 4 slots busy")).to_be_visible()
