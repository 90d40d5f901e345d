"""Where checkpoints are written: who may sweep what."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from saving import checkpoint_ids, store_alone

from core_sdk._ground import alive
from core_sdk._ground.alive import AliveLock, is_alive
from core_sdk._home.storage import DirectoryStorage

HOLD_A_PLACE = """
import sys
from pathlib import Path
from core_sdk._home.storage import DirectoryStorage
with DirectoryStorage(Path(sys.argv[1])).stage("held") as staging:
    (staging.path / "model.bin").write_bytes(b"1234")
    print(staging.path, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts another process that is in the middle of a save."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_A_PLACE, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()


def staged_path(holder: subprocess.Popen[str]) -> Path:
    assert holder.stdout is not None
    return Path(holder.stdout.readline().strip())


def foreign(place: Path) -> Path:
    """Renames a leftover as if another machine had made it."""
    renamed = place.with_name("0" * 12 + place.name[12:])
    place.rename(renamed)
    place.with_name(f"{place.name}.lock").rename(renamed.with_name(f"{renamed.name}.lock"))
    return renamed


def test_only_the_dead_are_swept(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    """A sweep removes staged files only after their writer has died."""
    path = staged_path(holder)
    storage = DirectoryStorage(tmp_path)

    assert storage.sweep() == []
    assert path.exists()
    holder.kill()
    holder.wait()
    assert storage.sweep() == [str(path.parent)]
    assert list((tmp_path / ".staging").iterdir()) == []


def test_a_save_of_this_process_is_not_swept(tmp_path: Path) -> None:
    """A sweep by this process, in any thread, does not remove its own staged files."""
    storage = DirectoryStorage(tmp_path)

    with storage.stage("a") as staging:
        (staging.path / "model.bin").write_bytes(b"1234")
        assert storage.sweep() == []
        thread = threading.Thread(target=DirectoryStorage(tmp_path).sweep)
        thread.start()
        thread.join()
        store_alone(staging, {})

    storage.verify("a")


def test_another_machines_leftovers_are_given_an_hour(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    """Another machine's leftovers are removed only when they are an hour old."""
    path = staged_path(holder)
    holder.kill()
    holder.wait()
    place = foreign(path.parent)
    storage = DirectoryStorage(tmp_path)

    assert storage.sweep() == []
    lock = place.with_name(f"{place.name}.lock")
    for old in (lock, place, place / "held"):
        os.utime(old, (0, 0))
    assert storage.sweep() == [], "a file in it has just been written"
    os.utime(place / "held" / "model.bin", (0, 0))
    assert storage.sweep() == [str(place)]


def test_another_machines_living_save_is_never_swept(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    """Another machine's save is not removed while its lock is held."""
    path = staged_path(holder)
    place = foreign(path.parent)
    for old in (place.with_name(f"{place.name}.lock"), place, place / "held", place / "held" / "model.bin"):
        os.utime(old, (0, 0))

    assert DirectoryStorage(tmp_path).sweep() == []
    assert (place / "held" / "model.bin").exists()


def test_many_saves_and_sweeps_at_once(tmp_path: Path) -> None:
    """Eight threads save while each also sweeps: all checkpoints are whole, and nothing is left."""
    storage = DirectoryStorage(tmp_path)
    failures: list[BaseException] = []

    def save(thread_index: int) -> None:
        try:
            for index in range(10):
                with storage.stage(f"{thread_index}-{index}") as staging:
                    (staging.path / "model.bin").write_bytes(b"1234")
                    storage.sweep()
                    store_alone(staging, {})
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=save, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert len(checkpoint_ids(storage)) == 80
    for storage_id in checkpoint_ids(storage):
        storage.verify(storage_id)
    assert list((tmp_path / ".staging").iterdir()) == []


def test_a_sweep_may_take_a_lock_before_its_owner_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a sweep locks a new staging directory first, the save uses another one."""
    lock, of_the_sweep = alive._lock, list[AliveLock]()

    def lock_late(descriptor: int, is_shared: bool) -> None:
        if not of_the_sweep:
            monkeypatch.setattr(alive, "_lock", lock)
            of_the_sweep.append(AliveLock(next((tmp_path / ".staging").glob("*.lock"))))
        lock(descriptor, is_shared)

    monkeypatch.setattr(alive, "_lock", lock_late)
    DirectoryStorage(tmp_path).check_writable()

    of_the_sweep[0].release()


def test_a_lock_is_held_once_in_a_process(tmp_path: Path) -> None:
    """A lock can be taken only once in a process, and checking it does not release it."""
    path = tmp_path / "lock"
    lock = AliveLock(path)

    with pytest.raises(BlockingIOError):
        AliveLock(path)
    assert is_alive(path)
    lock.release()
    assert not is_alive(path)
    AliveLock(path).release()
