"""The line of an error that lists show."""

from __future__ import annotations

import pytest

from core_sdk._ground.error_lines import described, ending_in_error_line, error_line

CUDA = """CUDA error: out of memory
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""


def _noted() -> ValueError:
    error = ValueError("bad")
    error.add_note("in the third fold")
    return error


def _exit_in_a_handler() -> BaseException:
    try:
        try:
            raise ValueError("bad\nsecond line")
        except ValueError:
            raise SystemExit(1)  # noqa: B904 - an exit as scripts write it
    except SystemExit as error:
        return error


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (ValueError(), "ValueError"),
        (RuntimeError(CUDA), "RuntimeError: CUDA error: out of memory"),
        (
            KeyError("lr\n    full_key: lr\n    object_type=dict"),
            r"KeyError: 'lr\n    full_key: lr\n    object_type=dict'",
        ),
        (AttributeError("Missing key lr\n    object_type=dict"), "AttributeError: Missing key lr"),
        (ImportError("\nBertModel requires PyTorch\nInstall it"), "ImportError: BertModel requires PyTorch"),
        (_noted(), "ValueError: bad"),
        (
            ExceptionGroup("two failed", [ValueError("a"), ValueError("b")]),
            "ExceptionGroup: two failed (2 sub-exceptions)",
        ),
        (SyntaxError("invalid syntax", ("train.py", 3, 1, "if", None, None)), "SyntaxError: invalid syntax"),
        (
            ValueError(
                "Caught ValueError in worker 0.\nOriginal Traceback (most recent call last):\n  File\nValueError: bad 7"
            ),
            "ValueError: bad 7",
        ),
        (SystemExit("no data"), "SystemExit: no data"),
        (_exit_in_a_handler(), "ValueError: bad"),
    ],
)
def test_an_error_is_named_by_its_type_and_the_first_line_of_its_message(error: BaseException, line: str) -> None:
    """The text of an error ends in its type and the first line of its message, whatever follows in the message."""
    try:
        raise error
    except BaseException as raised:  # noqa: BLE001 - with a traceback
        text = described(raised)

    assert text.rstrip().splitlines()[-1].removeprefix("  | ") == line


def test_a_text_that_ends_in_its_line_is_left_as_it_is() -> None:
    """A text of one line stays, and one of several gets the first as its last."""
    assert ending_in_error_line("ValueError: bad") == "ValueError: bad"
    assert ending_in_error_line("ValueError: bad\nsecond") == "ValueError: bad\nsecond\n\nValueError: bad\n"
    assert error_line("") == ""
