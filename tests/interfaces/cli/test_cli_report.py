"""`core-sdk report`: an experiment as one file."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import torch
from home.journals import new_trial, record, report
from interfaces.cli.commands import Cli

from core_sdk import core, media
from core_sdk._home import Home

HOSTILE = "<script>alert(1)</script>"


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_a_report_is_one_file_that_needs_nothing_else(cli: Cli, home: Home, tmp_path: Path) -> None:
    """A report has charts, trials and importances, and refers to no other file or site."""
    for number in range(12):
        folder = new_trial(home, HOSTILE, lr=number / 12, note=HOSTILE)
        record(folder, *(report(step, "validation", loss=number / (step + 1)) for step in range(5)))

    finished = cli("report", "1", "-o", "report.html")

    text = (tmp_path / "report.html").read_text()
    tags = Tags(text).found
    assert (finished.status, finished.output) == (0, "report.html\n")
    assert "<svg" in text
    assert "What mattered for validation.loss" in text
    assert text.count("<tr>") > 12
    assert "script" not in [tag for tag, _ in tags]
    assert not [attributes for _, attributes in tags if {"src", "href"} & attributes.keys()]
    assert not [name for _, attributes in tags for name in attributes if name.startswith("on")]


def test_a_report_shows_media(cli: Cli, home: Home, tmp_path: Path) -> None:
    """A report embeds the newest medium of each name and no scripts."""
    with core.init(name="digits", trial_name=HOSTILE, notes=HOSTILE) as context:
        for step in (1, 2):
            values = {
                "picture": media.Image(torch.rand(3, 8, 8), caption=HOSTILE),
                "words": media.Text(f"{HOSTILE} at {step}"),
                "sound": media.Audio(torch.zeros(1, 800), sample_rate=8000),
                "weights": media.Histogram(torch.randn(100)),
                "rows": media.Table([[HOSTILE, step]], ["name", "step"]),
                "confused": media.ConfusionMatrix([[1, 2], [3, 4]]),
            }
            context.train.report_metrics("validation", step, {"loss": 1 / step, **values})

    assert cli("report", "digits", "-o", "report.html").status == 0

    text = (tmp_path / "report.html").read_text()
    tags = Tags(text).found
    sources = [attributes["src"] or "" for _, attributes in tags if "src" in attributes]
    assert [source.partition(";")[0] for source in sources] == ["data:image/png", "data:audio/wav"]
    assert {"figure", "rect"} <= {name for name, _ in tags}
    assert "script" not in [name for name, _ in tags]
    assert text.count("<figure>") == 6
    assert "at 2" in text
    assert "validation.words at 1" not in text


def test_a_report_of_nothing_yet_is_written_too(cli: Cli, home: Home, tmp_path: Path) -> None:
    """A report is also written for a trial without reports."""
    record(new_trial(home))

    assert cli("report", "digits").status == 0
    assert "nothing to draw yet" in (tmp_path / "report-1.html").read_text()
