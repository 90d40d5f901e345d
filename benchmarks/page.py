"""How fast the web page is in Chromium, over a home of 10^4 trials and 10^7 points.

    python benchmarks/page.py [--home HOME] [--trials 10000] [--points 10000000] [--repeats 20]

The first useful paint of a view is the time from the change of the address to the second frame after its content is
there, in a page that was loaded again and has no answer yet. The server is a process of its own. It needs Debian's
chromium and playwright. Without --home one is written first, which takes a minute or two.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import core_sdk._interfaces.server
from core_sdk._home import Home

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from browser.conftest import CHROMIUM, OPTIONS
from page_home import write_home
from page_server import Server, serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

VIEWS = {
    "runs": ("runs", ".grid-row:not(.waiting)"),
    "runs by a minimum": ("runs?columns=id,min.validation.loss&sort=min.validation.loss", ".grid-row:not(.waiting)"),
    "experiments": ("runs?kind=experiments", ".grid-row:not(.waiting)"),
    "trial, 10^6 points": ("trials/1", ".chart canvas"),
    "trial": ("trials/77", ".chart canvas"),
    "overview": ("trials/77/overview", ".card dd"),
    "system": ("trials/77/system", ".chart canvas"),
    "output, 10^6 lines": ("trials/1/logs", ".log-line:not(.waiting)"),
    "output's end": ("trials/1/logs?line=999000", ".log-line.chosen"),
    "checkpoints": ("trials/77/checkpoints", ".plain-table td"),
    "experiment": ("experiments/3", ".card dd"),
    "learning curves": ("experiments/3/curves?metric=validation.loss", ".chart canvas"),
    "parallel coordinates": ("experiments/3/hyperparameters?metric=validation.loss", ".coordinate"),
    "compare 10 trials": ("compare?trials=2,3,4,5,6,7,8,9,10,11", ".chart canvas"),
    "queue": ("queue", ".card"),
}
"""The address of each view, and what is its content."""

# Runs in the page, where the clock is its frames' clock.
_SHOW = """
([hash, selector]) => new Promise((resolve) => {
  const start = performance.now();
  location.hash = hash;
  const look = () => {
    if (!document.querySelector("main " + selector)) return requestAnimationFrame(look);
    requestAnimationFrame(() => resolve(performance.now() - start));
  };
  requestAnimationFrame(look);
})
"""

_AFTER_INPUT = """
([selector, value]) => new Promise((resolve) => {
  const before = document.querySelector(".grid-rows").innerText;
  const start = performance.now();
  const element = document.querySelector(selector);
  if (value === null) element.click();
  else {
    element.value = value;
    element.dispatchEvent(new Event("input", { bubbles: true }));
    element.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  }
  const look = () => {
    if (document.querySelector(".grid-rows").innerText === before) return requestAnimationFrame(look);
    requestAnimationFrame(() => resolve(performance.now() - start));
  };
  requestAnimationFrame(look);
})
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, help="a home that benchmarks/page_home.py has written")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    measure_weight()
    with tempfile.TemporaryDirectory() as directory:
        home = Home.open(arguments.home) if arguments.home else Home.create(Path(directory, "home"))
        if not arguments.home:
            write_home(home, arguments.trials, arguments.points)
        with serving(home.root) as server, opened(server.entrance) as page:
            measure_views(page, arguments.repeats)
            measure_table(page, arguments.repeats)
            measure_memory(page, server)
    return 0


def measure_weight() -> None:
    folder = Path(core_sdk._interfaces.server.__file__).with_name("page")
    sent = [path for path in folder.rglob("*") if path.suffix in (".js", ".css", ".html", ".svg")]
    size = sum(len(gzip.compress(path.read_bytes())) for path in sent)
    show("page, compressed", f"{size / 1024:.0f} KiB in {len(sent)} files", "at most 200 KB")


@contextlib.contextmanager
def opened(entrance: str) -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(300_000)
        start = time.perf_counter()
        page.goto(entrance)
        page.wait_for_selector(".grid-row:not(.waiting)")
        show("first visit, until the table is there", f"{time.perf_counter() - start:.2f} s", "indexes a new home")
        start = time.perf_counter()
        page.reload()
        page.wait_for_selector(".grid-row:not(.waiting)")
        show("reload, until the table is there", f"{time.perf_counter() - start:.2f} s", "at most 2 s")
        yield page
        browser.close()


def measure_views(page: Page, repeats: int) -> None:
    for name, (address, selector) in VIEWS.items():
        times = []
        for _ in range(repeats):
            page.evaluate("location.hash = '#/nowhere'")
            page.reload()  # a page remembers what its views have shown
            page.wait_for_selector("main .empty")
            page.wait_for_selector(".connection-live")  # its own start, of 80 files, is no part of a view
            times.append(page.evaluate(_SHOW, [f"#/{address}", selector]))
        show(name, f"{milliseconds(times)}, first {times[0]:.0f} ms", "p95 at most 300 ms")


def measure_table(page: Page, repeats: int) -> None:
    page.evaluate(_SHOW, ["#/runs?columns=id,lr,validation.loss,optimizer", ".grid-row:not(.waiting)"])
    sort = ".grid-head span:nth-child(3) .grid-sort"
    times = [page.evaluate(_AFTER_INPUT, [sort, None]) for _ in range(repeats)]
    show("sort of all rows", milliseconds(times), "at most 100 ms")
    filters = [
        f"lr < {0.001 * (1 + number % 7)} and optimizer = {('adam', 'sgd')[number % 2]}" for number in range(repeats)
    ]
    times = [page.evaluate(_AFTER_INPUT, [".filter input", text]) for text in filters]
    show("filter of all rows", milliseconds(times), "at most 100 ms")


def measure_memory(page: Page, server: Server) -> None:
    heap = page.evaluate("() => performance.memory.usedJSHeapSize")
    show("memory", f"{heap / 1e6:.0f} MB of scripts, {server.rss_mb():.0f} MiB of the server", "server at most 200 MB")


def milliseconds(times: Sequence[float]) -> str:
    ordered = sorted(times)
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
    return f"median {statistics.median(ordered):.0f} ms, p95 {p95:.0f} ms"


def show(what: str, figure: str, target: str = "") -> None:
    print(f"{what:<40} {figure:<44} {target}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
