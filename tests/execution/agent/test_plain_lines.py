"""What a program writes to a terminal becomes the plain lines that it leaves behind."""

from __future__ import annotations

import io

import pytest

from core_sdk._execution.agent._plain_lines import PlainLines


def plain(*chunks: bytes) -> bytes:
    lines = PlainLines()
    return b"".join(map(lines.feed, chunks)) + lines.finish()


@pytest.mark.parametrize(
    ("written", "left"),
    [
        (b"one\ntwo", b"one\ntwo"),
        (b"one\r\ntwo\r\n\r\n", b"one\ntwo\n\n"),
        (b"\r 10%|#    |\r 50%|##   |\r100%|#####|\nnext\n", b"100%|#####|\nnext\n"),
        (b"10%\r20%\r30%\r\n", b"30%\n"),
        (b"\x1b[1;31mred\x1b[0m and \x1b[38;5;12mblue\x1b[m\n", b"red and blue\n"),
        (b"\x1b]0;title\x07a\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\\x1b(B\x1b=\n", b"alink\n"),
        (b"|\b/\b-\b\\ done\b\n\x07", b"\\ don\n"),
        ("⠋\b⠙\b⠹ é\n".encode(), "⠹ é\n".encode()),
        (b"\x1b[2K\rbar 1\x1b[2K\rbar 2\n", b"bar 2\n"),
        (b"long line\r\x1b[Kshort\n", b"short\n"),
        (b"tab\tstays\n", b"tab\tstays\n"),
        (b"\xff\x00\xfe\n", b"\xff\xfe\n"),
    ],
)
def test_only_what_stays_on_the_screen_is_kept(written: bytes, left: bytes) -> None:
    """The log keeps only what stays on the screen, also if the output comes byte by byte."""
    assert plain(written) == left
    assert plain(*(bytes([byte]) for byte in written)) == left


def test_bars_that_are_redrawn_together_leave_their_last_state() -> None:
    """Of bars that are redrawn together only the last state is kept, except lines given before the first redraw."""
    frames = [b"a %d\nb %d\nc %d" % (step, step, step) for step in range(4)]

    left = plain(*(frame + b"\r\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K" for frame in frames), b"log\n", frames[-1], b"\n")

    assert left == b"a 0\nb 0\nlog\na 3\nb 3\nc 3\n"


def test_a_line_is_given_as_soon_as_it_ends() -> None:
    """A line is given as soon as it ends, for those who follow the log."""
    lines = PlainLines()

    assert [lines.feed(b"a\nb"), lines.feed(b"c\n")] == [b"a\n", b"bc\n"]


def test_an_endless_line_does_not_fill_the_memory() -> None:
    """A line without an end is given in pieces and completely, so that it does not fill the memory."""
    lines = PlainLines()

    early = b"".join(lines.feed(b"x" * 65536) for _ in range(64))

    assert len(early) > 1 << 20
    assert len(early) + len(lines.finish()) == 64 * 65536


def test_a_live_display_of_rich_leaves_its_last_state() -> None:
    """Of a live display of the rich library, the log keeps the last state and the lines printed above it."""
    from rich.console import Console
    from rich.progress import Progress

    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system="truecolor")
    with Progress("{task.description} {task.completed}", console=console, auto_refresh=False) as progress:
        tasks = [progress.add_task(name, total=3) for name in ("train", "validate")]
        for _ in range(3):
            for task in tasks:
                progress.advance(task)
                progress.refresh()
        progress.console.print("[bold]a line of the log")
        progress.refresh()

    left = plain(screen.getvalue().encode()).decode().splitlines()

    assert [line.rstrip() for line in left if line.strip()][-3:] == ["a line of the log", "train 3", "validate 3"]
    assert len(left) < 8
