"""Tickets in the directory that all users of a machine share."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from parts import needs
from processes import Script, wait_for
from promises import promise

from core_sdk._machine.slots import SlotDirectory, Ticket, taken_slots
from core_sdk.errors import SlotError, SlotsTakenError

NAMES = ["gpu-a", "gpu-b"]
NOBODY = 65534


@pytest.fixture
def directory(tmp_path: Path) -> SlotDirectory:
    return SlotDirectory(tmp_path / "slots")


@contextlib.contextmanager
def posted(directory: SlotDirectory, num_wanted: int = 1, home: str = "/home/a") -> Iterator[Ticket]:
    ticket = Ticket(directory, Path(home), num_wanted, NAMES)
    try:
        yield ticket
    finally:
        ticket.release()


def test_a_slot_is_given_once_and_then_to_the_next_in_line(directory: SlotDirectory) -> None:
    """A slot is given to one ticket at a time; when it is released, the next in line gets it, and no later one."""
    with posted(directory, 2) as first, posted(directory) as second, posted(directory) as third:
        assert (first.held, second.held) == (NAMES, ())
        first.release()

        assert third.take(1, NAMES[:1]) == ()
        assert second.take(1, NAMES) == NAMES[:1]
        assert third.take(1, NAMES) == NAMES[1:]
        with directory.locked():
            assert [(each.number, each.held) for each in directory.tickets()] == [(2, NAMES[:1]), (3, NAMES[1:])]
    assert not list(directory.path.iterdir())


@promise("slots-kept-to-the-end")
def test_a_killed_holder_frees_its_slots_and_a_copy_of_its_lock_keeps_them(
    directory: SlotDirectory, start_script: Callable[..., Script]
) -> None:
    """A holder that is killed frees its slots, and leaves void files; an heir of its lock keeps them."""
    holder = start_script(
        """
        import os, signal, subprocess
        from pathlib import Path
        from core_sdk._machine.slots import SlotDirectory, Ticket
        ticket = Ticket(SlotDirectory(), Path("/home/b"), 2, ["gpu-a", "gpu-b"])
        heir = subprocess.Popen(["sleep", "100"], pass_fds=[ticket.fileno()], stdout=subprocess.DEVNULL)
        print(heir.pid)
        signal.pause()
        """
    )
    assert holder.process.stdout is not None
    heir = int(holder.process.stdout.readline())
    with posted(directory) as ticket:
        assert "trial of /home/b has gpu-a, gpu-b since" in ticket.obstacles()
        holder.process.kill()
        holder.process.wait()

        assert ticket.take(1, NAMES) == ()
        os.kill(heir, 9)
        wait_for(lambda: bool(ticket.take(1, NAMES)))
    with posted(directory):
        assert len(list(directory.path.iterdir())) == 2


def test_others_read_who_has_slots_and_the_owner_alone_the_trial(directory: SlotDirectory) -> None:
    """All may read who has which slots, and since when; the home and the trial are for their owner."""
    mask = os.umask(0o077)
    try:
        with posted(directory) as ticket:
            ticket.name_trial(5)
            modes = {
                path.suffix: stat.S_IMODE(path.stat().st_mode) for path in (ticket.path, *directory.path.iterdir())
            }
            with directory.locked():
                [told] = directory.tickets()
    finally:
        os.umask(mask)

    assert modes == {".ticket": 0o644, ".trial": 0o600}
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o1777
    assert (told.held, told.home, told.trial_id, told.pid) == (NAMES[:1], "/home/a", 5, os.getpid())
    assert b"home" not in (content := ticket.path.name.encode()) and abs(told.since - time.time()) < 60, content


@promise("slots-kept-to-the-end")
def test_a_directory_that_others_cannot_write_is_refused_in_words(directory: SlotDirectory) -> None:
    """A directory in which others cannot post tickets is refused, rather than that a slot is given twice."""
    directory.path.mkdir(mode=0o755)

    with pytest.raises(SlotError, match=r"only its owner, \w+, can write to it \(mode 755\).*chmod 1777"):
        Ticket(directory, Path("/home/a"), 1, NAMES)


@pytest.mark.parametrize("kind", ["link", "file", "missing parent"])
def test_what_is_no_directory_is_refused_in_words(directory: SlotDirectory, kind: str) -> None:
    """A link, a file and a path without a parent are refused with the path and what is wrong."""
    match kind:
        case "link":
            (directory.path.parent / "real").mkdir()
            directory.path.symlink_to(directory.path.parent / "real")
        case "file":
            directory.path.touch()
        case _:
            directory = SlotDirectory(directory.path / "slots")

    with pytest.raises(SlotError, match=re.escape(f"no slot can be taken in {directory.path}: ")):
        Ticket(directory, Path("/home/a"), 1, NAMES)


def test_a_full_disk_leaves_no_ticket_that_keeps_others_away(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk no ticket can be posted, which is said, and no empty one stays; a slot that is held is kept."""
    directory = SlotDirectory(small_disk / "slots")
    with posted(directory) as ticket:
        with contextlib.suppress(OSError), (small_disk / "filler").open("wb") as filler:
            while True:
                filler.write(b"x" * 4096)
                filler.flush()

        with pytest.raises(SlotError, match="No space left"):
            Ticket(directory, Path("/home/b"), 1, NAMES)
        with directory.locked():
            assert [each.held for each in directory.tickets()] == [ticket.held] == [NAMES[:1]]


def test_a_ticket_that_cannot_be_read_keeps_everybody_away(directory: SlotDirectory) -> None:
    """A living ticket whose slots are unknown is named with its owner, and no slot is given."""
    with posted(directory) as ticket:
        ticket.path.write_bytes(b"{")

        with pytest.raises(SlotError, match=r"which slots \w+ has is unknown, since 000001.ticket cannot be"):
            Ticket(directory, Path("/home/b"), 1, NAMES)
    (directory.path / "notes.ticket").touch()
    with posted(directory) as ticket:
        assert ticket.held


def test_a_ticket_that_somebody_removed_is_posted_again(directory: SlotDirectory) -> None:
    """A waiting ticket whose file is gone is posted again, in its place; one with slots removes nobody else's file."""
    with posted(directory, 2) as holder, posted(directory) as waiting:
        waiting.path.unlink()
        assert waiting.take(1, NAMES) == ()
        assert waiting.path.exists()

        holder.path.unlink()
        with posted(directory, 2) as next_one:
            assert (next_one.number, waiting.take(1, NAMES)) == (3, NAMES[:1])
            holder.release()
            assert len(list(directory.path.iterdir())) == 5  # its own private file is left


def test_a_process_that_was_stopped_in_line_is_passed_over(directory: SlotDirectory) -> None:
    """A ticket whose process has not looked for half a minute keeps back nothing, until it looks again."""
    with posted(directory, 2) as holder, posted(directory, 2) as stopped, posted(directory) as next_one:
        holder.release()
        assert next_one.take(1, NAMES) == ()
        os.utime(stopped.path, (time.time() - 60,) * 2)

        assert next_one.take(1, NAMES) == NAMES[:1]
        next_one.release()
        assert stopped.take(2, NAMES) == NAMES


def test_a_directory_that_somebody_keeps_locked_is_not_waited_for_for_ever(directory: SlotDirectory) -> None:
    """A lock that another process keeps on the directory gives an error at once to who cannot wait."""
    with posted(directory) as ticket:
        descriptor = os.open(directory.path, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)

        with pytest.raises(BlockingIOError):
            ticket.take(1, NAMES, patience_s=0)
        os.close(descriptor)


def test_who_does_not_wait_is_told_who_has_the_slots(directory: SlotDirectory, home: object) -> None:
    """Who cannot wait, such as the page, is told who has the slots and what waits for them; nothing stays in line."""
    with taken_slots(1000, Path("/home/a")) as slots:
        assert slots is not None and slots.ids == tuple(range(1000))

        with (
            pytest.raises(
                SlotsTakenError, match=r"waiting for 1 of \d+ slots: a trial of /home/a has cpu-0, .*`core-sdk"
            ),
            taken_slots(1, Path("/home/b")),
        ):
            pass
        assert len(list(directory.path.glob("*.ticket"))) == 1


@needs("other users")
def test_users_share_slots(directory: SlotDirectory) -> None:
    """Another user waits for the slots of this one, and is not told of which trial; dead tickets of it are ignored."""

    def as_nobody(do: Callable[[], None]) -> int:
        if not (pid := os.fork()):
            status = 1
            try:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                do()
                status = 0
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def take_one() -> None:
        ticket = Ticket(SlotDirectory(directory.path), Path("/home/nobody"), 1, NAMES)
        assert ticket.held == NAMES[1:]  # and dies with it, so that its files stay

    def wait() -> None:
        ticket = Ticket(SlotDirectory(directory.path), Path("/home/nobody"), 2, NAMES)
        assert ticket.held == ()
        assert re.search(r": root \(process \d+\) has gpu-a since", ticket.obstacles())

    directory.path.parent.chmod(0o755)
    for path in directory.path.parents[1:]:
        if path.stat().st_mode & stat.S_IXOTH:
            break
        path.chmod(0o711)  # pytest's own directories
    with posted(directory) as ticket:
        ticket.name_trial(5)

        assert (as_nobody(wait), as_nobody(take_one)) == (0, 0)
        with posted(directory) as other:
            assert other.held == NAMES[1:]
    assert {path.stat().st_uid for path in directory.path.iterdir()} == {NOBODY}
