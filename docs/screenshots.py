"""Takes the pictures of the web page that the documentation shows: writes a home, serves it, and looks at each view.

python docs/screenshots.py            # writes docs/ui/*.png; it needs Debian's chromium-headless-shell and playwright
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser.conftest import CHROMIUM, OPTIONS, serving  # noqa: E402
from browser.sample_home import write_sample_home  # noqa: E402
from browser.sample_search import run_search  # noqa: E402

_COLUMNS = "id,experiment,state,steps,validation.loss,validation.accuracy,hparams.lr,optimizer,started,label"

PICTURES = {
    "runs": (
        f"runs?columns={_COLUMNS}&where=id < 26",
        "light",
    ),
    "trial": ("trials/25?smoothing=0.6", "light"),
    "media": ("trials/25/media?step=300", "light"),
    "logs": ("trials/25/logs?attempt=1&line=1040", "dark"),
    "search": ("experiments/5/search", "light"),
    "hyperparameters": ("experiments/5/hyperparameters", "light"),
    "compare": ("compare?trials=13,16,19,22", "light"),
    "workspace": (
        "runs?view=charts&columns=id,validation.loss&where=id < 25&colour=hparams.lr&metrics=loss|acc",
        "light",
    ),
}
"""The view and the theme of each picture."""

_SIZE = (1200, 700)
_COLOURS = 256
"""A picture of few colours is small, and looks the same."""


def main(names: Sequence[str]) -> int:
    from playwright.sync_api import sync_playwright

    folder = ROOT / "docs" / "ui"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        # The page shows where the home is.
        home = write_sample_home(Path(directory, "runs"), hostile_name="detr baseline")
        run_search(home.root, Path(directory, "search"), num_trials=24)
        with serving(home) as site, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
            for name in names or PICTURES:
                view, theme = PICTURES[name]
                page = browser.new_page(
                    viewport={"width": _SIZE[0], "height": _SIZE[1]},
                    color_scheme="dark" if theme == "dark" else "light",
                    reduced_motion="reduce",
                )
                page.goto(site.entrance)
                page.wait_for_url(f"{site.origin}/")
                page.goto(site.address(view))
                page.wait_for_selector(".view")
                page.wait_for_function(
                    "() => !document.querySelector('.loading') && document.fonts.status === 'loaded'"
                )
                page.evaluate("place => { document.querySelector('.head .home').textContent = place; }", "~/runs")
                page.wait_for_timeout(500)  # the last chart is drawn
                path = folder / f"{name}.png"
                path.write_bytes(page.screenshot())
                reduce_colours(path)
                print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} KiB")
                page.close()
            browser.close()
    return 0


def reduce_colours(path: Path) -> None:
    from PIL import Image

    Image.open(path).convert("RGB").quantize(_COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
        path, optimize=True
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
