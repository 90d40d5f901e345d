"""The schema of a board in the documents is that of its types, and what is printed follows it."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from analysis.studies.test_board import board_of
from home.tries import study, trials_of_try

from core_sdk._analysis.studies import Board
from core_sdk._ground.records import fields_of, strict_json

DOCS = Path(__file__).resolve().parents[3] / "docs"

sys.path.append(str(DOCS))
import board_page  # noqa: E402 - it is a program beside the pages
import core_api_page  # noqa: E402


def test_the_page_is_made_of_the_types() -> None:
    """Each field has its type and its meaning there."""
    assert (DOCS / "board.md").read_text() == board_page.text()
    assert [
        name for kind in board_page.TITLES for name, (_, told) in core_api_page.attributes(kind).items() if not told
    ] == []


def test_a_printed_board_can_be_read_by_its_schema() -> None:
    """No field is missing, none has another type, and none is there that the schema does not have."""
    board = board_of(
        study(
            trials_of_try(1, [0.80, 0.81, 0.82], hypothesis="as it is"),
            trials_of_try(4, [0.88, 0.89, None], parent=1, verdict="keep", reason="killed by SIGKILL"),
        )
    )

    text = strict_json(fields_of(board))

    assert strict_json(fields_of(msgspec.json.decode(text, type=Board))) == text
    assert msgspec.json.decode(text).keys() == core_api_page.attributes(Board).keys()
