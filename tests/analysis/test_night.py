"""The night's report lists what has happened since somebody last looked, from journals."""

from __future__ import annotations

import time

from home.journals import START, new_trial, record

from core_sdk._analysis.night import Night, last_look, note_look, read_night
from core_sdk._ground.records import Alert, Ended, Report
from core_sdk._home import Home
from core_sdk._home.index import Index


def read(home: Home, since: float) -> Night:
    with Index(home) as index:
        index.refresh()
        return read_night(home, index, since, START + 9000)


def test_what_has_happened_is_told_by_kind(home: Home) -> None:
    """A trial that has failed, one that went back and has ended, and nothing of what was before."""
    failed, ended = new_trial(home), new_trial(home)
    report = Report(START + 1200, "training", 4000, {"loss": 0.5})
    record(failed, report, Ended(time=START + 1300, outcome="error", error="ValueError: nan"))
    words = "went back from step 4,210 to 4,000: loss 38.1 is 12 times the median of the last 50"
    alert = Alert(time=START + 2100, title="went back", description=words, level="warn")
    record(ended, alert, report, Ended(time=START + 2200, outcome="completed"))

    night = read(home, START + 500)

    assert [*night.happened] == ["failed", "went back", "ended"]
    assert night.happened["failed"][0].endswith("digits) at step 4,000: ValueError: nan")
    assert night.happened["went back"][0].endswith(words)
    assert "training" in night.time
    assert "failed" not in read(home, START + 1500).happened
    assert read(home, START + 5000).text().endswith("nothing has happened, and nothing runs")


def test_it_is_short_however_much_has_happened() -> None:
    """What is left out is counted."""
    night = Night(0.0, 7200.0, {"failed": ["x" * 500] * 900, "ended": ["ü" * 500] * 900, "running": ["r" * 300] * 9})

    assert len(night.text().encode()) <= 2000
    assert "and 894 more" in night.text()


def test_the_last_look_is_kept(home: Home) -> None:
    Home.create(home.root)
    assert last_look(home) is None
    now = time.time()

    note_look(home, now)

    assert last_look(home) == now
    (home.root / "looked.json").write_text("{")
    assert last_look(home) is None
