"""The same 10^6 points in our page and in other trackers' pages: time to the chart, memory, spikes that arrive.

    python benchmarks/page_peers.py [--points 1000000] [--environments DIRECTORY] [--data DIRECTORY]

Each of TensorBoard, MLflow and trackio is measured if DIRECTORY has an environment of its name, for example one of
`python -m venv DIRECTORY/mlflow` and `DIRECTORY/mlflow/bin/pip install mlflow`. With --data what was written is kept
and found by the next run, in which we build no index again. It needs Debian's chromium and playwright.

The time is that from the request to the second frame after the chart is there: of the first visit to a server that
has just started, and the median of later ones, each in a new browser context.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

import psutil
from _page_peer import PROJECT, spikes, values

from core_sdk._ground.records import FORMAT, AttemptStarted, Ended, Report, TrialRecord
from core_sdk._home import Home
from core_sdk._home.journal import encode_line

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from browser.conftest import CHROMIUM, OPTIONS
from ports import reserved_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Response

TOKEN = "tokenofthebenchmark0123456789abcdef"
NUM_LATER = 5
START_S = 300
CHART_MS = 300_000

# Runs in the page before anything else of it.
_WATCH = """
(selector => {
  const look = () => {
    if (!document.querySelector(selector)) return requestAnimationFrame(look);
    requestAnimationFrame(() => requestAnimationFrame(() => { window.shownAfterMs = performance.now(); }));
  };
  requestAnimationFrame(look);
})
"""


@dataclass(frozen=True)
class Contender:
    """A tracker whose page shows the points."""

    name: str
    write: Callable[[Path, int], None]
    argv: Callable[[Path, int], Sequence[str]]
    """The command of its server, by directory and port."""
    url: Callable[[Path, int], str]
    chart: str
    """A selector of what is there when the chart is."""
    variables: Callable[[Path], dict[str, str]] = lambda _: {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--environments", type=Path, default=Path("peers"))
    parser.add_argument("--data", type=Path)
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        data = arguments.data or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for contender in [ours(), *peers(arguments.environments)]:
            if contender.name != "Core SDK" and not (arguments.environments / contender.name).exists():
                print(f"{contender.name}: not installed in {arguments.environments}")
                continue
            directory = data / contender.name.replace(" ", "-")
            if not (directory / "written").exists():
                directory.mkdir(parents=True, exist_ok=True)
                contender.write(directory, arguments.points)
                (directory / "written").touch()
            measure(contender, directory, arguments.points)
    return 0


def ours() -> Contender:
    return Contender(
        "Core SDK",
        write_home,
        lambda _, port: [
            sys.executable, "-P", "-m", "core_sdk._interfaces.cli", "ui",
            "--no-browser", "--port", str(port), "--token", TOKEN,
        ],
        lambda _, port: f"http://127.0.0.1:{port}/#/trials/1",
        ".chart canvas",
        lambda directory: {"CORE_SDK_HOME": str(directory / "home")},
    )  # fmt: skip


def peers(environments: Path) -> list[Contender]:
    def program(name: str) -> str:
        return str((environments / name / "bin" / name).absolute())

    def writer(name: str) -> Callable[[Path, int], None]:
        script = Path(__file__).with_name("_page_peer.py")

        def write(directory: Path, num_points: int) -> None:
            python = environments / name / "bin" / "python"
            subprocess.run([python, script, name, directory, str(num_points)], check=True, stderr=subprocess.DEVNULL)

        return write

    return [
        Contender(
            "tensorboard",
            writer("tensorboard"),
            lambda directory, port: [program("tensorboard"), "--logdir", str(directory), "--port", str(port)],
            lambda _, port: f"http://localhost:{port}/#timeseries",
            "line-chart .series-view line-chart-grid-view svg line",
        ),
        Contender(
            "mlflow",
            writer("mlflow"),
            lambda directory, port: [
                program("mlflow"), "server", "--backend-store-uri", f"sqlite:///{directory}/mlflow.db",
                "--workers", "1", "--port", str(port),
            ],
            lambda directory, port: (
                f"http://127.0.0.1:{port}/#/experiments/1/runs/{(directory / 'run').read_text()}/model-metrics"
            ),
            ".js-plotly-plot .scatterlayer .trace",
        ),
        Contender(
            "trackio",
            writer("trackio"),
            lambda *_: [program("trackio"), "show", "--project", PROJECT, "--host", "127.0.0.1"],
            lambda _, port: f"http://127.0.0.1:{port}/?project={PROJECT}",
            ".vega-embed canvas.marks",
            lambda directory: {"TRACKIO_DIR": str(directory)},
        ),
    ]  # fmt: skip


def write_home(directory: Path, num_points: int) -> None:
    home = Home.create(directory / "home")
    experiment, folder = home.find_or_create_experiment(PROJECT), home.create_trial()
    folder.write_record(
        TrialRecord(trial_id=1, experiment_id=experiment.experiment_id, created=1.75e9, seed=0, hparams={})
    )
    with folder.journal_path(1).open("wb") as journal:
        begun = AttemptStarted(
            time=1.75e9, format=FORMAT, trial_id=1, attempt=1, host="node", pid=1, sdk_version="0", resumed_steps=0
        )  # fmt: skip
        journal.write(encode_line(begun))
        for step, at, value in values(num_points):
            journal.write(encode_line(Report(at, "training", step, {"loss": value})))
        journal.write(encode_line(Ended(time=1.75e9 + num_points, outcome="completed")))


def measure(contender: Contender, directory: Path, num_points: int) -> None:
    from playwright.sync_api import sync_playwright

    with server(contender, directory) as (process, port), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        visits = [visit(browser, contender, contender.url(directory, port), num_points) for _ in range(1 + NUM_LATER)]
        browser.close()
        tree = [process, *process.children(recursive=True)]
        server_bytes = sum(one.memory_info().rss for one in tree)
    first, *later = [time_ms for time_ms, *_ in visits]
    heap_bytes = max(size for _, size, _ in visits)
    num_spikes = visits[-1][2]
    print(
        f"{contender.name:<12} first {first:>7.0f} ms, later {statistics.median(later):>6.0f} ms; "
        f"server {server_bytes / 1e6:>5.0f} MB, scripts {heap_bytes / 1e6:>4.0f} MB; "
        f"{num_spikes} of {len(spikes(num_points))} spikes arrive",
        flush=True,
    )


def visit(browser: Browser, contender: Contender, url: str, num_points: int) -> tuple[float, int, int]:
    """Returns the time to the chart in ms, the scripts' memory in bytes, and the number of spikes that arrived."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    if contender.name == "Core SDK":  # as in a tab that has been entered before
        page.add_init_script(f"sessionStorage.setItem('core-sdk.key', '{TOKEN}')")
    answers: list[Response] = []
    page.on("response", lambda answer: answers.append(answer))
    page.add_init_script(f"({_WATCH.strip()})({contender.chart!r})")
    page.goto(url)
    page.wait_for_function("() => window.shownAfterMs > 0", timeout=CHART_MS)
    shown_ms = page.evaluate("() => window.shownAfterMs")
    heap_bytes = page.evaluate("() => performance.memory.usedJSHeapSize")
    texts = [answer.text() for answer in answers if "json" in (answer.headers.get("content-type") or "")]
    arrived = sum(
        any(re.search(rf"(?<![\d.]){value:g}(\.0)?(?!\d)", text) for text in texts)
        for value in spikes(num_points).values()
    )
    context.close()
    return shown_ms, heap_bytes, arrived


@contextlib.contextmanager
def server(contender: Contender, directory: Path) -> Iterator[tuple[psutil.Process, int]]:
    """Listens when the block begins."""
    environment = os.environ | contender.variables(directory)
    quiet = subprocess.DEVNULL
    with reserved_port() as reserved:
        port = 7860 if contender.name == "trackio" else reserved  # trackio has no option for it
        started = subprocess.Popen(contender.argv(directory, port), env=environment, stdout=quiet, stderr=quiet)
        process = psutil.Process(started.pid)
        try:
            await_answer(f"http://127.0.0.1:{port}/")
            yield process, port
        finally:
            for one in [*process.children(recursive=True), process]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.terminate()
            started.wait()


def await_answer(url: str) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            with urlopen(url):
                return
        except URLError as error:
            if getattr(error, "code", None) is not None:
                return  # it refuses a request without a token
        time.sleep(0.1)
    raise TimeoutError(f"no server at {url}")


if __name__ == "__main__":
    sys.exit(main())
