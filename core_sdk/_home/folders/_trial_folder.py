"""The folder of a trial: the names of its files, and the small files that are read and written as a whole."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from core_sdk._ground.alive import file_lock, is_alive
from core_sdk._ground.files import opened_regular, write_together, write_whole
from core_sdk._ground.ownership import give_to_owner_of
from core_sdk._ground.records import (
    MEDIA_DIRECTORY,
    WRITER_NAME,
    ClusterInfo,
    CommandRecord,
    EnvironmentRecord,
    ExitRecord,
    OperationsClosed,
    OperationWanted,
    Record,
    SlurmRecord,
    Source,
    StopRequest,
    TrialRecord,
    encode_file,
    from_json,
    in_order,
)
from core_sdk._home.folders._files import exists, read_file, write_file
from core_sdk._home.journal import encode_line
from core_sdk.errors import RecordDamagedError, TrialNotFoundError, UnsafePathError

_OF_ATTEMPT = re.compile(r"([1-9][0-9]{0,8})\.(?:journal|run\.json)")
_OF_NODE = re.compile(r"node([1-9][0-9]{0,5})")
_OF_OTHER = re.compile(rf"([1-9][0-9]{{0,8}})\.(?:rank([1-9][0-9]{{0,8}})|writer\.({WRITER_NAME}))\.journal")


class TrialFolder:
    """The folder of a trial, which may not exist."""

    def __init__(self, home_root: Path, trial_id: int, node: int = 0) -> None:
        """`node` is the number of a node in an attempt. Each node but the first has a folder of its own.

        It holds what the node's agent keeps of an attempt. All other files of the trial lie in the trial's folder.
        """
        self.home_root = home_root
        self.trial_id = trial_id
        self.node = node
        self.path = home_root.joinpath("runs", str(trial_id), *([f"node{node}"] if node else []))

    def of_node(self, node: int) -> TrialFolder:
        """Returns the folder of a node of the trial's attempts; for the first one, number 0, the trial's."""
        return TrialFolder(self.home_root, self.trial_id, node)

    def of_other_nodes(self) -> list[TrialFolder]:
        """Returns the folders that other nodes than the first have here."""
        found = (_OF_NODE.fullmatch(path.name) for path in self.path.glob("node*"))
        return [self.of_node(int(match[1])) for match in found if match]

    @property
    def tensorboard_path(self) -> Path:
        return self.path / "tensorboard"

    @property
    def media_path(self) -> Path:
        return self.path / MEDIA_DIRECTORY

    @property
    def code_path(self) -> Path:
        return self.path / "code"

    @property
    def sources_path(self) -> Path:
        """The archive of a variation's sources, as `core-sdk run` has copied them."""
        return self.path / "sources.tar.gz"

    def imported_path(self, attempt: int) -> Path:
        """Returns the path of the archive of what the process of a variation's attempt has imported."""
        return self.path / f"{attempt}.imported.tar.gz"

    @property
    def changes_path(self) -> Path:
        return self.path / journal_name(0)

    @property
    def operations_path(self) -> Path:
        return self.path / "operations.journal"

    @property
    def record_path(self) -> Path:
        return (self.path.parent if self.node else self.path) / "trial.json"

    def exists(self) -> bool:
        return exists(self.record_path)

    def clear(self) -> None:
        """Removes all that the folder holds. The empty folder keeps the id from being used again."""
        if self.path.is_symlink():
            raise UnsafePathError("the trial's folder", str(self.path), "is a symbolic link, and is not emptied")
        # The record is removed first, so that nobody sees an incomplete trial.
        self.record_path.unlink(missing_ok=True)
        for entry in self.path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink(missing_ok=True)

    def sweep_media(self) -> None:
        """Removes files of media that a process which was killed had begun to write. No attempt may be running."""
        for unfinished in self.media_path.glob(".*.tmp"):
            unfinished.unlink(missing_ok=True)

    def attempts(self) -> list[int]:
        """Returns the attempts that have begun, in order. The latest may have no journal yet."""
        found = (_OF_ATTEMPT.fullmatch(entry.name) for entry in os.scandir(self.path))
        return sorted({int(match[1]) for match in found if match})

    def newest_begun(self) -> int:
        """Returns the newest attempt whose script has begun; 0 if none has."""
        return next((n for n in reversed(self.attempts()) if self.journal_path(n).exists()), 0)

    def other_journals(self) -> list[tuple[int, Source]]:
        """Returns the attempt and the keeper of each journal that is not rank 0's: ranks first, then writers."""
        found = (_OF_OTHER.fullmatch(entry.name) for entry in os.scandir(self.path))
        keys = ((int(match[1]), match[3] or int(match[2])) for match in found if match)
        return sorted(keys, key=lambda key: (key[0], in_order(key[1])))

    def journal_path(self, attempt: int, source: Source = 0) -> Path:
        """Returns the path of a journal. Others than rank 0 make the file when they first record something."""
        return self.path / journal_name(attempt, source)

    def writer_path(self, name: str) -> Path:
        """Returns the path of the file that the process of a writer holds locked while it writes."""
        return self.path / f"writer.{name}.lock"

    def living_writers(self) -> list[str]:
        """Returns the names of the writers whose processes live, in order."""
        locks = self.path.glob("writer.*.lock")
        return sorted(lock.name.removeprefix("writer.").removesuffix(".lock") for lock in locks if is_alive(lock))

    def tensorboard_source_path(self, rank: int = 0) -> Path:
        """Returns the directory for event files that a rank's script writes itself, and selects some of to show."""
        return self.path / (f"tensorboard.rank{rank}.local" if rank else "tensorboard.local")

    def alive_path(self, attempt: int) -> Path:
        """Returns the path of the file that the script's process holds locked while it lives."""
        return self.path / f"{attempt}.alive"

    def supervised_path(self, attempt: int) -> Path:
        """Returns the path of the file that the attempt's agent holds locked.

        The agent holds it from before the script starts until its end is recorded.
        """
        return self.path / f"{attempt}.supervised"

    def log_path(self, attempt: int) -> Path:
        return self.path / f"{attempt}.log"

    def read_log(self, attempt: int, offset: int, max_bytes: int) -> bytes:
        """Returns the output of an attempt from byte `offset` on; empty at its end, and if none was kept."""
        try:
            with opened_regular(self.log_path(attempt)) as descriptor:
                return os.pread(descriptor, max_bytes, offset)
        except FileNotFoundError:
            return b""

    @property
    def profiles_path(self) -> Path:
        """The directory of the traces that `core-sdk trial profile` has asked for."""
        return self.path / "profiles"

    def stall_path(self, attempt: int) -> Path:
        """Returns the path of the stacks that were taken when the attempt last stood still."""
        return self.path / f"{attempt}.stall.txt"

    def stop_path(self, attempt: int) -> Path:
        return self.path / f"{attempt}.stop"

    def run_info_path(self, attempt: int) -> Path:
        return self.path / f"{attempt}.run.json"

    def write_run_info(self, attempt: int, info: ClusterInfo, *, overwrite: bool = True) -> None:
        write_file(self.run_info_path(attempt), info, overwrite=overwrite, is_durable=False)

    def read_run_info(self, attempt: int) -> ClusterInfo | None:
        """Reads the run info of an attempt, which is None for a script that was started by hand."""
        return read_file(self.run_info_path(attempt), ClusterInfo)

    def running_attempts(self) -> set[int]:
        """Returns the attempts whose processes live, and later ones that a launcher of these may have begun."""
        running, is_supervised = set(), False
        for attempt in self.attempts():
            is_supervised = is_supervised or is_alive(self.supervised_path(attempt))
            if is_supervised or is_alive(self.alive_path(attempt)):
                running.add(attempt)
        return running

    def is_running(self, attempt: int) -> bool:
        supervised = (self.supervised_path(number) for number in range(attempt, 0, -1))
        return is_alive(self.alive_path(attempt)) or any(map(is_alive, supervised))

    def running_attempt(self) -> int | None:
        """Returns the running attempt, or None. Only the latest attempt can be running."""
        attempts = self.attempts()
        return attempts[-1] if attempts and self.is_running(attempts[-1]) else None

    def read_record(self) -> TrialRecord:
        """Reads the trial's record. Raises `TrialNotFoundError` or `RecordDamagedError`."""
        record = read_file(self.record_path, TrialRecord)
        if record is None:
            raise TrialNotFoundError(self.trial_id, self.home_root)
        try:
            from_json(record.hparams)
            from_json(record.data)
        except ValueError as error:
            raise RecordDamagedError(self.record_path, str(error)) from error
        return record

    def origin(self) -> dict[str, str]:
        """Returns whose trial it is, and of which home, where several homes are read as one."""
        return {}

    def write_record(self, record: TrialRecord) -> None:
        write_file(self.record_path, record)

    def read_command(self) -> CommandRecord | None:
        """Reads the command that starts the script again, which may be None. Raises `RecordDamagedError`.

        If it starts in the trial's copy of the code, it has the present path of that, since the home may have moved.
        """
        record = read_file(self.path / "command.json", CommandRecord)
        if record is None or (recorded := Path(record.cwd)).parts[-3:] != ("runs", str(self.trial_id), "code"):
            return record
        here = self.code_path.absolute()
        if here.exists() or not recorded.exists():
            record.cwd = str(here)
            record.argv = [
                str(here / Path(argument).relative_to(recorded))
                if Path(argument).is_relative_to(recorded)
                else argument
                for argument in record.argv
            ]
        return record

    def write_command(self, record: CommandRecord) -> None:
        write_file(self.path / "command.json", record)

    def write_begun(self, record: TrialRecord, command: CommandRecord | None, info: ClusterInfo) -> None:
        """Makes the trial visible, together with the files with which its first attempt is started."""
        self.write_run_info(info.trial.attempt, info)
        files = {} if command is None else {self.path / "command.json": encode_file(command)}
        # The record is the last file, since it makes the trial visible.
        write_together({**files, self.record_path: encode_file(record)})

    def exit_path(self, attempt: int) -> Path:
        return self.path / f"{attempt}.exit"

    def read_exit(self, attempt: int) -> ExitRecord | None:
        return read_file(self.exit_path(attempt), ExitRecord)

    def write_exit(self, attempt: int, record: ExitRecord) -> None:
        write_file(self.exit_path(attempt), record)

    def environment_path(self, attempt: int) -> Path:
        return self.path / f"{attempt}.environment"

    def read_environment(self, attempt: int) -> EnvironmentRecord | None:
        return read_file(self.environment_path(attempt), EnvironmentRecord)

    def write_environment(self, attempt: int, record: EnvironmentRecord) -> None:
        write_file(self.environment_path(attempt), record)

    def read_slurm_job(self) -> SlurmRecord | None:
        """Reads the newest job of a trial that runs in Slurm; None for any other trial."""
        return read_file(self.path / "slurm.json", SlurmRecord)

    def write_slurm_job(self, record: SlurmRecord) -> None:
        write_file(self.path / "slurm.json", record)

    def read_stop_request(self, attempt: int) -> StopRequest | None:
        return read_file(self.stop_path(attempt), StopRequest)

    def request_stop(self, attempt: int, source: str) -> None:
        """Asks the attempt to stop. Its `should_preempt()` returns True within a second."""
        write_file(self.stop_path(attempt), StopRequest(time=time.time(), source=source))

    def append_change(self, record: Record, check: Callable[[], None] | None = None) -> None:
        """Durably records a change that was made to the trial from outside. After an `OSError` nothing is recorded.

        Blocks while another process appends a change. `check` is called while no other process can append. If it
        raises, nothing is recorded.
        """
        with file_lock(self.path / "changes.lock"):
            if check is not None:
                check()
            _append_line(self.changes_path, encode_line(record))

    def append_changes(self, lines: bytes) -> None:
        """Durably records changes by whole lines, as another home has recorded them."""
        with file_lock(self.path / "changes.lock"):
            _append_line(self.changes_path, lines)

    def append_operation(self, record: OperationWanted | OperationsClosed) -> None:
        """Durably records an operation that the trial's search wants. Only one process at a time may call this."""
        _append_line(self.operations_path, encode_line(record))


def journal_name(attempt: int, source: Source = 0) -> str:
    """Returns the name, in the trial's folder, of the journal that a rank or a writer keeps of an attempt.

    Attempt 0 stands for changes that are made to the trial from outside.
    """
    if attempt == 0:
        return "changes.journal"
    if isinstance(source, str):
        return f"{attempt}.writer.{source}.journal"
    return f"{attempt}.rank{source}.journal" if source else f"{attempt}.journal"


def _append_line(path: Path, line: bytes) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "a+b", buffering=0) as file:
        give_to_owner_of(path.parent, path, file.fileno())
        end = file.seek(0, os.SEEK_END)
        if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
            line = b"\n" + line  # a writer died in the middle of its line
        try:
            write_whole(file.fileno(), line)
            os.fsync(file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                file.truncate(end)
            error.filename = str(path)
            raise
