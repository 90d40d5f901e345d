"""The recording in the README is made by a command, and shows what a terminal showed."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
SVG = "{http://www.w3.org/2000/svg}"

COMMAND = """\
import sys, time
print("$ a command")
sys.stdout.write("10 %\\r")
sys.stdout.write("100 % of <all> \\x1b[31min red\\x1b[0m\\n")
print("on a terminal" if sys.stdout.isatty() else "in a pipe")
sys.exit(3)
"""


def test_a_command_is_recorded_as_a_terminal_shows_it(tmp_path: Path) -> None:
    """Line by line, with its colours and its exit status; of a rewritten line the last state is kept."""
    path = tmp_path / "recording.svg"

    done = subprocess.run(
        [sys.executable, str(DOCS / "recording.py"), str(path), "--", sys.executable, "-c", COMMAND],
        capture_output=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 3
    texts = list(ElementTree.parse(path).iter(f"{SVG}text"))
    assert [shown(text) for text in texts] == ["$ a command", "100 % of <all> ", "in red", "on a terminal"]
    assert texts[2].get("fill") != texts[3].get("fill")


def test_the_recording_shows_no_machine(tmp_path: Path) -> None:
    """The committed recording is complete and contains no local paths."""
    text = (DOCS / "demo.svg").read_text()

    lines = [shown(each) for each in ElementTree.fromstring(text).iter(f"{SVG}text")]
    assert any(line.startswith("$ core-sdk run") for line in lines)
    assert "/home/" not in text and "/root" not in text and str(DOCS.parent) not in text


def shown(text: ElementTree.Element) -> str:
    return (text.text or "").replace("\u00a0", " ")
