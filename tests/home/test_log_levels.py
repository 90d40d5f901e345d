"""The levels of lines of output, as loggers and interpreters write them."""

from __future__ import annotations

import pytest
from home.test_log_lines import lines_of

from core_sdk._home import Home
from core_sdk._home.logs.levels import LevelReader
from core_sdk._home.logs.lines import LogFilter

TRACEBACK = """\
before
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    raise KeyError("a")
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 5, in <module>
    raise ValueError("b") from None
ValueError: b
after
"""


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("ERROR: core_sdk: it broke", "ERROR"),
        ("[rank=3] WARNING: slow", "WARNING"),
        ("WARNING:root:x", "WARNING"),
        ("CRITICAL:my.logger:x", "CRITICAL"),
        ("2026-11-24 06:11:22,123 ERROR it broke", "ERROR"),
        ("2026-11-24T06:11:22Z [ERROR] it broke", "ERROR"),
        ("2026-11-24 06:11:22,123 - my.logger - ERROR - it broke", "ERROR"),
        ("my.logger - WARNING - it broke", "WARNING"),
        ("[2026-11-24 06:11:22,123][__main__][DEBUG] - x", "DEBUG"),
        ("[ERROR] it broke", "ERROR"),
        ("[INFO|trainer.py:123] 2026-11-24 06:11:22,123 >> x", "INFO"),
        ("[WARNING|trainer.py:123] 2026-11-24 06:11:22,123 >> x", "WARNING"),
        ("2026-11-24 06:11:22.123 | ERROR    | __main__:main:3 - x", "ERROR"),
        ("\x1b[31mERROR\x1b[0m training failed", "ERROR"),
        ("\x1b[32m2026-11-24\x1b[0m \x1b[1m\x1b[31mERROR\x1b[0m x", "ERROR"),
        ("06:11:22 WARN x", "WARNING"),
        ("FATAL: x", "CRITICAL"),
        ("DEBUG x", "DEBUG"),
        ("epoch 3: loss 0.5", "INFO"),
        ("no ERROR was found", "INFO"),
        ("ERRORS 0", "INFO"),
        ("2026-11-24 06:11:22 INFO the last ERROR was at noon", "INFO"),
        ("", "INFO"),
    ],
)  # fmt: skip
def test_a_level_is_known_by_how_loggers_write_it(line: str, level: str) -> None:
    """A line's level is read as loggers write it, and not from a mention within a sentence."""
    assert LevelReader().level(line) == level


def test_a_traceback_is_an_error_to_its_last_line(home: Home) -> None:
    """All lines of a traceback count as errors, also if the page begins within it."""
    log = lines_of(home, TRACEBACK.encode())

    page = log.read(0, 100, LogFilter(min_level="ERROR"))

    assert [line.number for line in page.lines] == [1, 2, 3, 4, 6, 8, 9, 10, 11]
    assert [line.number for line in log.read(3, 100, LogFilter(min_level="ERROR")).lines] == [3, 4, 6, 8, 9, 10, 11]


def test_each_rank_has_tracebacks_of_its_own() -> None:
    """Tracebacks are recognized per rank, even if lines of ranks are mixed."""
    levels = LevelReader()
    lines = [
        "[rank=0] Traceback (most recent call last):", "[rank=1] fine", '[rank=0]   File "train.py", line 3',
        "[rank=1] fine", "[rank=0] ValueError: b", "[rank=0] fine",
    ]  # fmt: skip

    assert [levels.level(line) for line in lines] == ["ERROR", "INFO", "ERROR", "INFO", "ERROR", "INFO"]
