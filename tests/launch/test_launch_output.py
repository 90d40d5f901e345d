"""The ranks' output arrives whole, line by line, each line with its rank, whatever the ranks and its readers do."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import struct
import subprocess
import sys
import termios
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import TIMEOUT_S, wait_for

from core_sdk._home.logs.ranks import RankFilter
from core_sdk._machine.processes.output import _stream
from core_sdk._machine.processes.output._outlet import Outlet
from core_sdk._machine.processes.output._prefixed_lines import PrefixedLines
from core_sdk._machine.processes.output._rank_output import RankOutput, RankPipes

# Line ends are many, characters of several bytes and bytes of no character are some.
TEXT = st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"word", "é€𝄞".encode(), b"\xff\xf0\xc3"])).map(b"".join)
RankProcess = subprocess.Popen[bytes]
StartRank = Callable[[RankPipes, str], RankProcess]


@pytest.fixture
def start_rank(tmp_path: Path) -> Iterator[StartRank]:
    """Starts a script with its output in a rank's pipes, as torch does."""
    started: list[RankProcess] = []

    def start(pipes: RankPipes, source: str) -> RankProcess:
        with Path(pipes.stdout_path).open("w") as stdout, Path(pipes.stderr_path).open("w") as stderr:
            command = [sys.executable, "-u", "-c", textwrap.dedent(source)]
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, cwd=tmp_path))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


class Shown:
    """A file in the place of the launcher's stdout or stderr."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @property
    def content(self) -> bytes:
        return self.path.read_bytes()


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Shown]:
    shown = Shown(tmp_path / "shown")
    yield shown
    os.close(shown.descriptor)


@pytest.fixture
def output(tmp_path: Path, shown: Shown) -> Iterator[RankOutput]:
    """Yields a RankOutput whose stdout and stderr go to one file, as in a terminal."""
    with RankOutput(tmp_path, shown.descriptor, shown.descriptor) as output:
        yield output


def end_of(process: RankProcess) -> int:
    return process.wait(TIMEOUT_S)


def prefixed(text: bytes, prefix: bytes) -> bytes:
    """Returns the expected output for a text that comes in one piece."""
    lines = re.findall(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", text)
    ending = b"" if text.endswith(b"\n") or not text else b"\n"
    return b"".join(prefix + line for line in lines) + ending


def without_line_ends(text: bytes) -> bytes:
    return re.sub(rb"[\r\n]", b"", text)


@given(chunks=st.lists(TEXT.filter(bool)), is_flushed=st.booleans(), max_held_bytes=st.integers(1, 20))
def test_text_is_the_same_however_it_is_cut(chunks: list[bytes], is_flushed: bool, max_held_bytes: int) -> None:
    """Into chunks, into pieces shown before a line's end, into pieces of a line too long to be held."""
    lines = PrefixedLines(b"[rank=0] ", max_held_bytes)

    given = b""
    for chunk in chunks:
        given += lines.feed(chunk) + (lines.flush() if is_flushed else b"")
    given += lines.finish()

    assert given == prefixed(b"".join(chunks), b"[rank=0] ")


@given(text=TEXT, cuts=st.lists(st.integers(0, 40)))
def test_characters_are_never_shown_in_halves(text: bytes, cuts: list[int]) -> None:
    """Multi-byte characters are never shown in part, though lines may be."""
    text = text.replace(b"\xff\xf0\xc3", b"")
    lines = PrefixedLines(b"")

    for start, stop in zip([0, *sorted(cuts)], sorted(cuts), strict=False):
        shown = lines.feed(text[start:stop]) + lines.flush()

        assert shown == shown.decode().encode()


@given(pieces=st.lists(st.tuples(st.integers(0, 1), TEXT, st.booleans())))
def test_ranks_never_tear_each_others_lines(pieces: list[tuple[int, bytes, bool]]) -> None:
    """Each line is of one rank, and all of a rank's text is in its lines, in order."""
    writers = [PrefixedLines(b"[rank=0] "), PrefixedLines(b"[rank=1] ")]
    read_end, write_end = os.pipe()
    outlet = Outlet(write_end, threading.Event())

    for rank, chunk, is_flushed in pieces:
        outlet.write(writers[rank].feed(chunk), writers[rank])
        if is_flushed:
            outlet.write(writers[rank].flush(), writers[rank])
    for writer in writers:
        outlet.write(writer.finish(), writer)
    outlet.finish(outlet)
    outlet.close()
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        shown = file.read()

    for line in shown.splitlines(keepends=True):
        assert line == b"\n" or re.fullmatch(rb"\[rank=[01]\] [^\[]*", line, re.DOTALL)
    for rank in (0, 1):
        text = b"".join(chunk for writer, chunk, _ in pieces if writer == rank)
        assert without_line_ends(RankFilter([rank], is_launched=True).feed(shown)) == without_line_ends(text)


def test_ranks_write_at_once_and_nothing_is_lost(output: RankOutput, shown: Shown, start_rank: StartRank) -> None:
    """No line is lost if ranks write at once to both pipes."""
    source = """
        import os
        for number in range(3000):
            os.write(1 + number % 2, b"%d %s\\n" % (number, b"x" * (number * number % 997)))
        os._exit(0)
    """
    processes = [start_rank(output.open(rank), source) for rank in range(4)]

    assert [end_of(process) for process in processes] == [0] * 4
    assert all(output.wait_for_end(rank, TIMEOUT_S) for rank in range(4))

    lines = shown.content.splitlines()
    assert len(lines) == 4 * 3000
    for rank in range(4):
        words = [line.split() for line in lines if line.startswith(b"[rank=%d] " % rank)]
        numbers = [int(word[1]) for word in words]
        assert [number for number in numbers if number % 2 == 0] == list(range(0, 3000, 2))
        assert [number for number in numbers if number % 2 == 1] == list(range(1, 3000, 2))
        assert all(len(b"".join(word[2:])) == int(word[1]) ** 2 % 997 for word in words)


def test_a_long_line_arrives_whole(
    output: RankOutput, shown: Shown, start_rank: StartRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of a megabyte arrives unchanged while another rank writes."""
    # On a busy machine its writer may have to wait for so long that the beginning is shown, as a prompt is.
    monkeypatch.setattr(_stream, "_UNFINISHED_S", TIMEOUT_S)
    monkeypatch.setattr(_stream, "_LONG_UNFINISHED_S", TIMEOUT_S)
    chatting = start_rank(output.open(1), "while True: print('words', flush=True)")
    wait_for(lambda: b"[rank=1] words\n" in shown.content)

    long = start_rank(
        output.open(0), r"import os; os.write(1, bytes([255, 128, 13, 10]) * 2 + b'\xfe' * 10**6 + b'\n')"
    )
    end_of(long)
    assert output.wait_for_end(0, TIMEOUT_S)
    chatting.kill()

    expected = b"[rank=0] \xff\x80\r\n[rank=0] \xff\x80\r\n[rank=0] " + b"\xfe" * 10**6 + b"\n"
    lines = [line for line in shown.content.splitlines(keepends=True) if not line.startswith(b"[rank=1] ")]
    assert b"".join(lines) == expected


def test_a_prompt_is_shown_and_continued(output: RankOutput, shown: Shown, start_rank: StartRank) -> None:
    """A prompt is shown before its line ends, and later output continues it."""
    source = """
        import time
        name = input("Name? ")
        print(f"Hello, {name}", end="", flush=True)
        while True:
            print(".", end="", flush=True)
            time.sleep(0.01)
    """
    process = start_rank(output.open(0), source)

    wait_for(lambda: shown.content == b"[rank=0] Name? ")
    send(process, "Zoë")
    wait_for(lambda: b"...." in shown.content)

    assert shown.content.startswith("[rank=0] Name? Hello, Zoë....".encode())


def test_a_line_that_is_shown_unfinished_is_not_written_into(
    output: RankOutput, shown: Shown, start_rank: StartRank
) -> None:
    """Another rank's line does not go into an unfinished one, which is continued on a new line."""
    asking = start_rank(output.open(0), "print(input('Name? '))")
    wait_for(lambda: shown.content == b"[rank=0] Name? ")

    end_of(start_rank(output.open(1), "print('other')"))
    assert output.wait_for_end(1, TIMEOUT_S)
    asking.communicate(b"Ann\n")
    assert output.wait_for_end(0, TIMEOUT_S)

    assert shown.content == b"[rank=0] Name? \n[rank=1] other\n[rank=0] Ann\n"


def test_a_progress_bar_stays_one_line(output: RankOutput, shown: Shown, start_rank: StartRank) -> None:
    """A progress bar stays on one line, and another rank's line does not overwrite it."""
    bar = start_rank(output.open(0), r"print('1%', '2%', sep='\r', end='\r'); input(); print('3%\r4%')")
    wait_for(lambda: shown.content == b"[rank=0] 1%\r[rank=0] 2%\r")

    end_of(start_rank(output.open(1), "print('other')"))
    assert output.wait_for_end(1, TIMEOUT_S)
    bar.communicate(b"\n")
    assert output.wait_for_end(0, TIMEOUT_S)

    assert shown.content == b"[rank=0] 1%\r[rank=0] 2%\r\n[rank=1] other\n[rank=0] 3%\r[rank=0] 4%\n"


def test_the_launchers_words_stand_on_lines_of_their_own(
    output: RankOutput, shown: Shown, start_rank: StartRank
) -> None:
    """The launcher's messages stand on lines of their own, without waiting for unfinished ones."""
    start_rank(output.open(0), "input('Name? ')")
    wait_for(lambda: shown.content == b"[rank=0] Name? ")

    output.say("first\nsecond")
    output.say("third\n")
    output.close()

    assert shown.content == b"[rank=0] Name? \nfirst\nsecond\nthird\n"


def test_stdout_and_stderr_stay_apart(tmp_path: Path, shown: Shown, start_rank: StartRank) -> None:
    """stdout and stderr of the ranks go to the launcher's stdout and stderr."""
    errors = Shown(tmp_path / "errors")

    with RankOutput(tmp_path, shown.descriptor, errors.descriptor) as output:
        end_of(start_rank(output.open(5), "import sys; print('out', end=''); print('error', file=sys.stderr)"))
        output.say("words")

    os.close(errors.descriptor)
    assert shown.content == b"[rank=5] out\n"
    assert sorted(errors.content.splitlines()) == [b"[rank=5] error", b"words"]


def test_what_a_rank_leaves_behind_does_not_hold_up_the_end(
    output: RankOutput, shown: Shown, start_rank: StartRank
) -> None:
    """A process that keeps the pipes open does not delay the end."""
    source = """
        import subprocess, sys
        talk = "while True: print('left behind', flush=True)"
        print("before", flush=True)
        subprocess.Popen([sys.executable, "-c", talk])
    """
    process = start_rank(output.open(0), source)
    end_of(process)
    wait_for(lambda: b"left behind" in shown.content)

    is_ended = output.wait_for_end(0, 0.1)
    output.close()

    assert not is_ended
    assert shown.content.startswith(b"[rank=0] before\n")
    # Its pipe is closed now, and it dies of that: an error that nobody sees.


def test_a_restarted_rank_has_pipes_of_its_own(output: RankOutput, shown: Shown, start_rank: StartRank) -> None:
    """A restarted rank has its own pipes and tail, and late output of the first still comes."""
    before = start_rank(output.open(0), "import sys; print('before', file=sys.stderr); print(input())")
    wait_for(lambda: output.tail(0) == b"before\n")

    pipes = output.open(0)
    assert output.tail(0) == b""
    end_of(start_rank(pipes, "import sys; print('after', file=sys.stderr)"))
    is_ended = output.wait_for_end(0, TIMEOUT_S)
    before.communicate(b"late\n")
    wait_for(lambda: b"late" in shown.content)

    assert is_ended
    assert output.tail(0) == b"after\n"
    assert shown.content == b"[rank=0] before\n[rank=0] after\n[rank=0] late\n"


def test_the_last_words_of_a_rank_are_kept(output: RankOutput, start_rank: StartRank) -> None:
    """The last 64 KiB of a rank's stderr are kept as written, and the time of its last traceback."""
    source = """
        import sys
        sys.stderr.write("Traceback (most recent call last) is what I say\\n")
        sys.stderr.write("x" * 100_000 + "\\n")
        print("Traceback (most recent call last)")
        input()
        raise ValueError("the reason")
    """
    started = time.monotonic()
    process = start_rank(output.open(0), source)
    wait_for(lambda: len(output.tail(0)) == 1 << 16)
    first = output.traceback_time(0)
    process.communicate(b"\n")
    assert output.wait_for_end(0, TIMEOUT_S)

    last = output.traceback_time(0)
    assert first is not None
    assert last is not None
    assert started < first < last < time.monotonic()
    assert len(output.tail(0)) == 1 << 16
    assert output.tail(0).endswith(b"ValueError: the reason\n")
    assert b"[rank" not in output.tail(0)


@pytest.mark.parametrize(
    ("written", "is_one"),
    [
        ("[rank12]: Traceback (most recent call last):", True),
        ("  + Exception Group Traceback (most recent call last):", True),
        ("He said: Traceback (most recent call last):", False),
    ],
)
def test_a_traceback_is_known_by_its_first_line(
    output: RankOutput, start_rank: StartRank, written: str, is_one: bool
) -> None:
    """A traceback is recognized by its first line, in pieces and behind torch's prefix."""
    source = f"""
        import os
        for character in "before\\n" + {written!r}:
            os.write(2, character.encode())
    """
    end_of(start_rank(output.open(12), source))
    assert output.wait_for_end(12, TIMEOUT_S)

    assert (output.traceback_time(12) is not None) == is_one


def test_a_traceback_counts_when_it_comes(output: RankOutput, start_rank: StartRank) -> None:
    """The time of a traceback does not change with later output."""
    source = """
        import sys
        print("Traceback (most recent call last):", file=sys.stderr)
        input()
        print("handled", file=sys.stderr)
    """
    process = start_rank(output.open(0), source)
    wait_for(lambda: output.traceback_time(0) is not None)
    first = output.traceback_time(0)

    process.communicate(b"\n")
    assert output.wait_for_end(0, TIMEOUT_S)

    assert output.traceback_time(0) == first


def test_a_rank_that_never_was_has_said_nothing(output: RankOutput) -> None:
    """A rank that never started has no output."""
    assert output.tail(3) == b""
    assert output.traceback_time(3) is None
    assert output.wait_for_end(3, 0)


@pytest.mark.parametrize("is_blocking", [True, False])
def test_a_slow_reader_slows_the_ranks_and_loses_nothing(
    tmp_path: Path, start_rank: StartRank, is_blocking: bool
) -> None:
    """A slow reader blocks the ranks, and nothing is lost or kept in memory without limit."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, is_blocking)
    num_lines = 200_000
    content = b""

    def read_all() -> None:
        nonlocal content
        with os.fdopen(read_end, "rb") as file:
            content = file.read()

    with RankOutput(tmp_path, write_end, write_end) as output:
        process = start_rank(output.open(0), f"for number in range({num_lines}): print(number, 'x' * 40)")
        assert os.read(read_end, 1) == b"["
        # It prints more than all pipes together hold.
        assert process.poll() is None
        assert not output.wait_for_end(0, 0.1)
        reader = threading.Thread(target=read_all)
        reader.start()
        assert end_of(process) == 0
        assert output.wait_for_end(0, TIMEOUT_S)
    os.close(write_end)
    reader.join()

    assert (b"[" + content).splitlines() == [b"[rank=0] %d %s" % (number, b"x" * 40) for number in range(num_lines)]


def test_what_is_still_in_a_pipe_at_the_close_comes_too(tmp_path: Path) -> None:
    """Output that is still in a pipe is shown at the close."""
    read_end, write_end = os.pipe()
    output = RankOutput(tmp_path, write_end, write_end)
    first, second = (os.open(output.open(rank).stdout_path, os.O_WRONLY) for rank in range(2))
    os.write(first, b"x" * 100_000 + b"\n")
    wait_for(lambda: num_readable_bytes(read_end) >= 1 << 16)
    os.write(second, b"in the pipe")

    def close() -> None:
        output.close()
        os.close(write_end)

    closing = threading.Thread(target=close)
    closing.start()
    with os.fdopen(read_end, "rb") as file:
        shown = file.read()
    closing.join()
    os.close(first)
    os.close(second)

    assert shown == b"[rank=0] " + b"x" * 100_000 + b"\n[rank=1] in the pipe\n"


def test_a_reader_that_goes_away_does_not_reach_the_ranks(tmp_path: Path, shown: Shown, start_rank: StartRank) -> None:
    """If the reader leaves, ranks end well and the number of dropped bytes is reported."""
    read_end, write_end = os.pipe()

    with RankOutput(tmp_path, write_end, shown.descriptor) as output:
        process = start_rank(output.open(0), "print('first'); input(); print('x' * 10**6); print('last')")
        assert os.read(read_end, 100) == b"[rank=0] first\n"
        os.close(read_end)
        process.communicate(b"\n")
        assert process.returncode == 0
        assert output.wait_for_end(0, TIMEOUT_S)

    os.close(write_end)
    num_bytes = 10**6 + len("\nlast\n") + 2 * len("[rank=0] ")
    assert shown.content == b"[core-sdk] %d bytes of output were dropped: Broken pipe\n" % num_bytes


@pytest.mark.parametrize(
    "kind",
    [
        "pipe",
        "socket",
        "terminal",
        "frozen terminal",
    ],
)
def test_a_reader_that_reads_nothing_is_not_waited_for_once_it_is_hurried(
    kind: str, tmp_path: Path, shown: Shown, start_rank: StartRank
) -> None:
    """Once hurried, a reader that reads nothing does not block ranks, and the dropped bytes are counted."""
    if kind == "socket":
        ends = [end.detach() for end in socket.socketpair()]
    else:
        ends = list(os.pipe() if kind == "pipe" else os.openpty())
    if kind == "frozen terminal":
        termios.tcflow(ends[1], termios.TCOOFF)
    hurry = threading.Event()

    with RankOutput(tmp_path, ends[1], shown.descriptor, hurry) as output:
        process = start_rank(output.open(0), "for _ in range(100_000): print('x' * 40)")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        hurry.set()
        assert process.wait(20) == 0
        output.close()

    assert os.get_blocking(ends[1])
    assert re.fullmatch(rb"\[core-sdk\] \d+ bytes of output were dropped: nobody read it\n", shown.content)
    for end in ends:
        os.close(end)


def test_output_that_was_closed_before_the_start_is_dropped(
    tmp_path: Path, shown: Shown, start_rank: StartRank
) -> None:
    """Output to a closed descriptor is dropped and counted."""
    closed = os.dup(shown.descriptor)
    os.close(closed)

    with RankOutput(tmp_path, closed, shown.descriptor) as output:
        assert end_of(start_rank(output.open(0), "print('lost')")) == 0

    assert shown.content == b"[core-sdk] 14 bytes of output were dropped: Bad file descriptor\n"


def test_a_full_disk_does_not_reach_the_ranks(
    small_disk: Path, tmp_path: Path, shown: Shown, start_rank: StartRank
) -> None:
    """On a full disk ranks go on, and the dropped bytes are reported when there is space again."""
    kept = Shown(small_disk / "kept")
    source = """
        import fcntl, sys, termios
        print("first")
        print(input() * 4_200_000, end="")
        while fcntl.ioctl(1, termios.FIONREAD, bytes(4)) != bytes(4): pass
        print("read", file=sys.stderr)
        print(input())
    """

    with RankOutput(tmp_path, kept.descriptor, shown.descriptor) as output:
        process = start_rank(output.open(0), source)
        wait_for(lambda: kept.content == b"[rank=0] first\n")
        fill(small_disk / "filling")
        send(process, "x")
        # One thread reads and writes: it has tried the disk before it reads the next line.
        wait_for(lambda: shown.content == b"[rank=0] read\n")
        (small_disk / "filling").unlink()
        send(process, "last")
        assert end_of(process) == 0
        assert output.wait_for_end(0, TIMEOUT_S)

    content = kept.content
    os.close(kept.descriptor)
    assert re.fullmatch(
        rb"\[rank=0\] first\n(\[rank=0\] x*)?"
        rb"\n\[core-sdk\] \d+ bytes of output were dropped: No space left on device\n\[rank=0\] x*last\n",
        content,
    )


def num_readable_bytes(descriptor: int) -> int:
    num_bytes: int = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0]
    return num_bytes


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def send(process: RankProcess, line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line.encode() + b"\n")
    process.stdin.flush()
