"""Regular expressions by which runs are found."""

from __future__ import annotations

import pytest
from home.journals import new_trial, record, report
from interfaces.server.visitor import Visitor, target_of

from core_sdk._home import Home


@pytest.mark.parametrize(
    ("search", "ids"),
    [
        ("/^onerror|x onerror/", [2]),
        (r"/^[13]$/", [3, 1]),
        (r"/\S/", [3, 2, 1]),
        ("/no such (text|word)/", []),
        ("/", []),
    ],
)
def test_a_search_between_slashes_is_a_regular_expression(visitor: Visitor, search: str, ids: list[int]) -> None:
    """Its ^ and $ are the ends of a line of a name, a label, the notes, the id or a hyperparameter."""
    assert visitor.question("/runs", search=search)["ids"] == ids
    assert visitor.question("/columns", containing=search)["columns"]


@pytest.mark.parametrize(
    ("search", "words"),
    [("/[/", "unterminated"), (f"/a{{{'9' * 20}}}/", "no regular"), ("/(.|.)*(.|.)*(.|.)*(.|.)*\\d!/", "2 seconds")],
)
def test_a_regular_expression_that_is_none_or_takes_too_long_is_refused(
    visitor: Visitor, home: Home, search: str, words: str
) -> None:
    """The server answers other questions meanwhile: the search is a process of its own, which is ended."""
    record(new_trial(home, "x" * 100), report(1, loss=0.5))

    answer = visitor.get(target_of("/runs", search=search))

    assert (answer.status, answer.problem) == (400, "bad_expression")
    assert words in answer.json["error"]["message"]
