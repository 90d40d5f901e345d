"""The launcher's own words, each line marked as its own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable

MARK = "[core-sdk] "


def marked(lines: Iterable[str]) -> str:
    return "".join(f"{MARK}{line}\n" for line in lines)


def say(lines: Iterable[str]) -> None:
    """On stderr: stdout is the script's."""
    with contextlib.suppress(OSError):  # a closed terminal, a full disk
        sys.stderr.write(marked(lines))
        sys.stderr.flush()
