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

import msgspec
import pytest
from parts import needs
from processes import Script, wait_for
from promises import promise

from core_sdk._ground.alive import AliveLock
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


def as_nobody(do: Callable[[], None]) -> int:
    """Calls a function as another user, in a process of its own, and returns 0 if it has raised nothing."""
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


def open_to_others(directory: SlotDirectory) -> None:
    directory.path.parent.chmod(0o755)
    for path in directory.path.parents[1:]:
        if path.stat().st_mode & stat.S_IXOTH:
            break
        path.chmod(0o711)  # pytest's own directories


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


def put(path: Path, content: bytes | int, mode: int = 0o644) -> None:
    """Makes a file with this content, or of so many bytes that take no room."""
    path.touch()
    if isinstance(content, int):
        os.truncate(path, content)
    else:
        path.write_bytes(content)
    path.chmod(mode)


def ticket(**changes: object) -> bytes:
    return msgspec.json.encode(
        {"place": 1, "num_wanted": 1, "usable": NAMES, "held": NAMES, "pid": 1, "since": 1.0, **changes}
    )


ODD: dict[str, Callable[[Path], None]] = {
    "no content": lambda path: put(path, b""),
    "half of it": lambda path: put(path, ticket()[:20]),
    "6 GB of nothing": lambda path: put(path, 6 << 30),
    "nested deeply": lambda path: put(path, b'{"more": ' + b"[" * 100_000),
    "not JSON": lambda path: put(path, b"\xff\x00"),
    "another type": lambda path: put(path, ticket(place="first")),
    "an endless number": lambda path: put(path, ticket().replace(b'"since":1.0', b'"since":1e999')),
    "fewer than no slots": lambda path: put(path, ticket(num_wanted=-1)),
    "names that clear the screen": lambda path: put(path, ticket(held=["\x1b[2J"])),
}
"""Tickets whose slots cannot be known."""

OTHER: dict[str, Callable[[Path], None]] = {
    "a time that never comes": lambda path: put(path, ticket(since=1e300)),
    "a directory": lambda path: path.mkdir(),
    "a pipe": lambda path: os.mkfifo(path),
    "a link": lambda path: path.symlink_to("/dev/zero"),
    "the largest number": lambda path: put(path.with_name(f"{'9' * 18}.ticket"), b""),
    "more digits than a name may have": lambda path: put(path.with_name(f"{'9' * 240}.ticket"), b""),
    "digits of another script": lambda path: put(path.with_name("٣.ticket"), b""),
}


@pytest.mark.parametrize("odd", [*ODD, *OTHER])
def test_an_odd_file_that_no_process_has_locked_is_no_ticket(directory: SlotDirectory, odd: str) -> None:
    """Whatever somebody has left among the tickets, slots are given as if it were not there."""
    with posted(directory):
        pass
    (ODD | OTHER)[odd](directory.path / "000001.ticket")

    with posted(directory) as first, posted(directory) as second, posted(directory) as third:
        assert (first.held, second.held, third.held) == (NAMES[:1], NAMES[1:], ())
        assert [each.number for each in directory.read()] == [first.number, second.number, third.number]
        assert "trial of /home/a has gpu-a since" in third.obstacles()


@promise("slots-kept-to-the-end")
@pytest.mark.parametrize("odd", ODD)
def test_an_odd_ticket_that_a_process_has_locked_is_named_with_its_owner(directory: SlotDirectory, odd: str) -> None:
    """A process may hold slots by it, which nobody knows: none is given, and no other directory is advised."""
    with posted(directory):
        pass
    ODD[odd](directory.path / "000007.ticket")
    lock = AliveLock.alone(directory.path / "000007.ticket")

    with pytest.raises(
        SlotError, match=r"which slots \w+ has is unknown, since 000007.ticket cannot be read"
    ) as caught:
        Ticket(directory, Path("/home/b"), 1, NAMES)

    assert "CORE_SDK_SLOTS" not in str(caught.value) and "can end that, or remove the file" in str(caught.value)
    lock.release()
    with posted(directory) as ticket:
        assert ticket.held


def test_a_time_that_cannot_be_is_shown_as_now(directory: SlotDirectory) -> None:
    """A holder's time decides nothing, so that an odd one keeps nobody from the slots."""
    with posted(directory):
        pass
    put(directory.path / "000007.ticket", ticket(since=1e300, held=NAMES[:1]))
    lock = AliveLock.alone(directory.path / "000007.ticket")

    with posted(directory, 2) as waiting:
        told = waiting.obstacles()
    lock.release()

    assert re.search(r"has gpu-a since \d\d:\d\d", told)


@needs("other users")
@pytest.mark.parametrize("is_locked", [False, True])
def test_a_ticket_that_only_its_owner_may_open_counts_if_it_is_locked(
    directory: SlotDirectory, is_locked: bool
) -> None:
    """Whether a process has a file of the mode 000 locked is told by the kernel's list of locks."""
    with posted(directory):
        pass
    put(directory.path / "000007.ticket", ticket(), 0)
    lock = AliveLock.alone(directory.path / "000007.ticket") if is_locked else None

    def take() -> None:
        with contextlib.nullcontext() if not is_locked else pytest.raises(SlotError, match="which slots root has"):
            Ticket(SlotDirectory(directory.path), Path("/home/nobody"), 1, NAMES)

    open_to_others(directory)
    assert as_nobody(take) == 0
    if lock is not None:
        lock.release()


@needs("other users")
def test_a_private_file_of_another_user_takes_no_number(directory: SlotDirectory) -> None:
    """Nobody else can remove it, so that the number next to it is taken, although no ticket has its own."""
    with posted(directory):
        pass
    put(directory.path / "000001.trial", 6 << 30, 0o600)

    def take() -> None:
        ticket = Ticket(SlotDirectory(directory.path), Path("/home/nobody"), 1, NAMES)
        assert (ticket.number, ticket.held) == (2, NAMES[:1])

    open_to_others(directory)
    assert as_nobody(take) == 0


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

    def take_one() -> None:
        ticket = Ticket(SlotDirectory(directory.path), Path("/home/nobody"), 1, NAMES)
        assert ticket.held == NAMES[1:]  # and dies with it, so that its files stay

    def wait() -> None:
        ticket = Ticket(SlotDirectory(directory.path), Path("/home/nobody"), 2, NAMES)
        assert ticket.held == ()
        assert re.search(r": root \(process \d+\) has gpu-a since", ticket.obstacles())

    open_to_others(directory)
    with posted(directory) as ticket:
        ticket.name_trial(5)

        assert (as_nobody(wait), as_nobody(take_one)) == (0, 0)
        with posted(directory) as other:
            assert other.held == NAMES[1:]
    assert {path.stat().st_uid for path in directory.path.iterdir()} == {NOBODY}
