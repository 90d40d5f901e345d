"""Nothing that a script chose can act on the terminal or on a spreadsheet."""

from __future__ import annotations

import pytest

from core_sdk._ground.records import format_number, strict_json
from core_sdk._interfaces.render.output import cell
from core_sdk._interfaces.render.text import HarmlessOutput, format_size, format_time, printable


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\rb\nc", "a\\rb\\nc"),
        ("\x9b31m", "\\x9b31m"),
        ("right\u202eleft", "right\\u202eleft"),
        ("\ud800", "\\ud800"),
        ("Größe 精度 😀", "Größe 精度 😀"),
    ],
)
def test_control_characters_are_shown_not_obeyed(hostile: str, shown: str) -> None:
    """Escape sequences of both kinds, line ends and reversed writing; letters of all languages stay."""
    assert printable(hostile) == shown


HARMFUL = [
    b"\x1b]0;a title\x07",
    b"\x1b]8;;http://a.link\x1b\\",
    b"\x1b]52;c;Y2xpcGJvYXJk\x07",
    b"\x1bPq\x1b\\",
    b"\x1bc",
    b"\x1b(0",
    b"\x1b[2J",
    b"\x1b[1;1H",
    b"\x1b[?1049h",
    b"\x1b[3A",
    b"\x9b".decode("latin-1").encode(),
    b"\x07\x08\x0e",
]


@pytest.mark.parametrize("num_bytes", [1, 3, 1000])
def test_a_terminal_gets_text_and_colours_only(num_bytes: int) -> None:
    """Titles, links, resets, movements and other control characters are left out, in chunks of any size."""
    output = "Größe\t\x1b[1;31mred\x1b[0m\r\n".encode().join([b"", *HARMFUL, b""])
    harmless = HarmlessOutput()

    shown = b"".join(harmless.feed(output[at : at + num_bytes]) for at in range(0, len(output), num_bytes))

    assert shown.decode() == "Größe\t\x1b[1;31mred\x1b[0m\r\n" * (len(HARMFUL) + 1)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_a_formula_becomes_text_in_csv(start: str) -> None:
    """A text that a spreadsheet would run as a formula gets a leading quote in CSV."""
    assert cell(f"{start}SUM(A1)") == f"'{start}SUM(A1)"


def test_numbers_stay_numbers_in_csv() -> None:
    """Negative numbers stay numbers, and containers become JSON."""
    values = [cell(value) for value in (-1.5, -3, float("-inf"), {"a": -1}, (), None)]

    assert values == [-1.5, -3, "-Infinity", '{"a": -1}', "[]", ""]


def test_json_is_strict_and_ascii() -> None:
    """NaN and infinities become strings, and other characters than ASCII are escaped."""
    text = strict_json({"nan": float("nan"), "inf": [float("inf"), float("-inf")], "ü\x1b": 1})

    assert text == '{"nan": "NaN", "inf": ["Infinity", "-Infinity"], "\\u00fc\\u001b": 1}'


def test_figures_are_short() -> None:
    """Six significant digits, whole integers, binary units; times that no calendar has stay numbers."""
    assert [format_number(value) for value in (0.1234567, 2**62, float("nan"), float("-inf"))] == [
        "0.123457",
        "4611686018427387904",
        "NaN",
        "-Infinity",
    ]
    assert [format_size(size) for size in (0, 1023, 1536, 5 << 30)] == ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
    assert format_time(None) == ""
    assert format_time(1e300) == "1e+300"
