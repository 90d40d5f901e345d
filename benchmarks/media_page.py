"""Measures how smoothly the slider of the page moves over 100 steps of images of 256 x 256, in Chromium.

python benchmarks/media_page.py [--steps 100] [--images 4]

A step counts when its images are decoded and a frame was drawn. The first pass begins once the images have arrived. It
needs Debian's chromium and playwright.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import torch
from browser.conftest import CHROMIUM, OPTIONS, serving

from core_sdk._home import Home
from core_sdk.core import init
from core_sdk.media import Image

_MOVE = """
async (numSteps) => {
  const slider = document.querySelector("input[type=range]");
  const start = performance.now();
  for (let step = 0; step < numSteps; step += 1) {
    slider.value = String(step);
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    await new Promise(requestAnimationFrame);
    await Promise.all([...document.querySelectorAll(".medium img")].map((image) => image.decode()));
    if (!document.querySelector(".medium").innerText.includes(`step ${step}`)) throw new Error(`not at step ${step}`);
  }
  return (1000 * numSteps) / (performance.now() - start);
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--images", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        os.environ["CORE_SDK_HOME"] = directory
        with init(name="slider") as context:
            for step in range(arguments.steps):
                images = [Image(torch.rand(3, 256, 256)) for _ in range(arguments.images)]
                context.train.report_metrics("samples", step, {"images": images})
        measure(Home.open(Path(directory)), arguments.steps, arguments.steps * arguments.images)


def measure(home: Home, num_steps: int, num_images: int) -> None:
    from playwright.sync_api import sync_playwright

    with serving(home) as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(120_000)
        arrived: list[str] = []
        page.on("requestfinished", lambda request: arrived.append(request.url) if ".png" in request.url else None)
        page.goto(site.entrance)
        page.wait_for_url(f"{site.origin}/")
        page.goto(site.address("trials/1/media"))
        page.wait_for_selector(".medium img")
        while len(arrived) < num_images:
            page.wait_for_event("requestfinished")
        for name in ("first pass", "second pass"):
            print(f"{name}: {page.evaluate(_MOVE, num_steps):.0f} steps a second; at least 30")
        browser.close()


if __name__ == "__main__":
    main()
