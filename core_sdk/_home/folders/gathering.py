"""The homes of several people as one: a folder of links to their trials and experiments.

Each link is a number here, and what it leads to is a trial there. Links are only added, so that no number is used
twice. The folder lies in the home of who reads, and so does the index. Nothing is written into the homes of others,
and nothing through a link: what lies in a home of one's own is changed there, by its number there.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import logging
import os
import pwd
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from core_sdk._ground.alive import file_lock
from core_sdk._ground.environment import Environment
from core_sdk._ground.files import explained
from core_sdk._ground.ownership import is_own, make_directory
from core_sdk._ground.records import FORMAT, ExperimentRecord, HomeRecord, Record, TrialRecord, generated_name
from core_sdk._home.folders._experiment_folder import ExperimentFolder
from core_sdk._home.folders._files import ID, exists, read_file
from core_sdk._home.folders._home import GATHERING_LOCK, Home, Kind
from core_sdk._home.folders._trial_folder import TrialFolder
from core_sdk.errors import HomeNotWritableError, HomesOnlyReadError, HomeTooNewError, RecordDamagedError

logger = logging.getLogger("core_sdk.tracking")

_PATIENCE_S = 1.0
_LONGEST_S = 10.0
"""The times in which a home answers at all, and what is new in it. A slower one is left out until it has answered."""


def gathered_home(patterns: Sequence[str]) -> GatheredHome:
    """Returns the homes that match these patterns as one, whose index lies in the home of this process's environment.

    Raises `HomeNotWritableError`.
    """
    own = Environment.read().home
    try:
        return GatheredHome(own, patterns)
    except OSError as error:
        raise HomeNotWritableError(own, explained(error).strerror or str(error)) from error


class GatheredHome(Home):
    """All homes that match some patterns and that this user may read, at any time as `renew` has found them."""

    is_gathered: ClassVar[bool] = True

    def __init__(self, own: Path, patterns: Sequence[str]) -> None:
        """`own` is the home of who reads. Raises `OSError` if nothing can be written there."""
        self.patterns = [os.path.abspath(os.path.expanduser(pattern)) for pattern in patterns]  # noqa: PTH100, PTH111
        name = hashlib.sha256("\0".join(sorted(self.patterns)).encode(errors="surrogateescape")).hexdigest()[:16]
        super().__init__(own / "gathered" / name)
        for directory in (self.runs, self.experiments):
            make_directory(directory, parents=True, exist_ok=True)
        (self.root / GATHERING_LOCK).touch(mode=0o600)
        self._sources: dict[Path, _Source] = {}
        self._trials, self._experiments = _Links(self.runs), _Links(self.experiments)
        self._links: Mapping[Kind, _Links] = {"trial": self._trials, "experiment": self._experiments}
        self.left_out: dict[Path, str] = {}

    @property
    def location(self) -> str:
        return " ".join(self.patterns)

    def check_changeable(self) -> None:
        raise HomesOnlyReadError(self.location)

    def own(self, kind: Kind, number: int) -> tuple[Home, int]:
        found = self.trial(number) if kind == "trial" else self.experiment(number)
        there = found.path.readlink()
        home = Home.open(there.parent.parent.resolve())
        if not is_own(home.root):
            raise HomesOnlyReadError.foreign(home.root, f"{kind} {number}", _user_name(home.root.stat().st_uid))
        return home, int(there.name)

    def own_homes(self) -> list[str]:
        return [str(source.root) for source in self._sources.values() if source.found and source.found.is_own]

    def renew(self) -> dict[Path, str]:
        """Looks for new homes, trials and experiments. Returns the homes that are left out, each with the reason."""
        sources = [self._sources.setdefault(root, _Source(root)) for root in self._roots()]
        for source in sources:
            source.begin_look(self._links)
        deadline = time.monotonic() + _PATIENCE_S
        for source in sources:
            source.await_look(deadline)
        found = {str(source.root): source.found for source in sources if source.found is not None}
        for kind, links in self._links.items():
            links.add(each for contents in found.values() for each in contents.new[kind])
            links.shown = {number for number, target in links.targets.items() if target.rsplit("/", 2)[0] in found}
        self.left_out = {source.root: source.problem for source in sources if source.problem}
        return self.left_out

    def _roots(self) -> list[Path]:
        """Returns the folders that may be homes. They are not touched, since one may be on a disk that hangs."""
        return sorted({root for pattern in self.patterns for root in _expanded(Path(pattern))})

    def name_of(self, path: Path) -> str:
        return os.path.realpath(path)

    def home_of(self, trial_id: int) -> Home:
        return Home(self._trials.target(trial_id).parent.parent)

    def origin(self, folder: Path) -> dict[str, str]:
        return {"owner": _user_name(folder.stat().st_uid), "home": str(folder.readlink().parent.parent)}

    def local_trials(self, experiment_id: int) -> Callable[[int], int]:
        there = super().local_trials(experiment_id)
        runs = self._experiments.target(experiment_id).parent.parent / "runs"
        return lambda trial_id: self._trials.number(runs / str(there(trial_id))) or 0

    def folder(self, trial_id: int) -> TrialFolder:
        return _GatheredTrial(self, trial_id)

    def trial_ids(self, *, include_deleted: bool = False) -> list[int]:
        return [one for one in sorted(self._trials.shown) if include_deleted or self.folder(one).exists()]

    def experiment_folder(self, experiment_id: int) -> ExperimentFolder:
        return _GatheredExperiment(self, experiment_id)

    def experiment_ids(self, *, include_unfinished: bool = False) -> list[int]:
        ids = sorted(self._experiments.shown)
        return [one for one in ids if include_unfinished or exists(self.experiment_folder(one).record_path)]

    def code_archive(self, sha256: str) -> Path:
        found = (Home(source.root).code_archive(sha256) for source in self._sources.values() if source.found)
        return next(filter(exists, found), super().code_archive(sha256))

    def take_trial(self, record: TrialRecord, trial_id: int) -> TrialRecord:
        """Returns the record of a trial with the numbers of this home, and the name that it has in its own."""
        runs = self._trials.target(trial_id).parent

        def number(there: int | None) -> int | None:
            return None if there is None else self._trials.number(runs / str(there))

        record.name = record.name or generated_name(record.trial_id, record.created)
        record.trial_id = trial_id
        record.experiment_id = self._experiments.number(runs.parent / "experiments" / str(record.experiment_id)) or 0
        record.parent, record.try_id, record.started_by = map(number, (record.parent, record.try_id, record.started_by))
        return record

    def take_experiment(self, record: ExperimentRecord, experiment_id: int) -> ExperimentRecord:
        """Returns the record of an experiment with the numbers of this home."""
        record.experiment_id = experiment_id
        if record.parent is not None:
            there = self._experiments.target(experiment_id).parent / str(record.parent)
            record.parent = self._experiments.number(there)
        return record


class _GatheredTrial(TrialFolder):
    """A trial as its home has it, but with the numbers of this one."""

    def __init__(self, home: GatheredHome, trial_id: int) -> None:
        super().__init__(home.root, trial_id)
        self._home = home

    def read_record(self) -> TrialRecord:
        return self._home.take_trial(super().read_record(), self.trial_id)

    def append_change(self, record: Record, check: Callable[[], None] | None = None) -> None:
        self._home.check_changeable()

    def origin(self) -> dict[str, str]:
        return self._home.origin(self.path)


class _GatheredExperiment(ExperimentFolder):
    def __init__(self, home: GatheredHome, experiment_id: int) -> None:
        super().__init__(home.root, experiment_id)
        self._home = home

    def read(self) -> ExperimentRecord:
        return self._home.take_experiment(super().read(), self.experiment_id)

    @contextlib.contextmanager
    def edit(self) -> Iterator[ExperimentRecord]:
        self._home.check_changeable()  # the record has the numbers of this home
        yield self.read()

    def origin(self) -> dict[str, str]:
        return self._home.origin(self.path)


class _Links:
    """The numbers that folders of other homes have here."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.targets: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self.shown: set[int] = set()
        """The numbers in homes that answer."""
        self._read()

    def number(self, target: Path) -> int | None:
        return self._numbers.get(str(target))

    def target(self, number: int) -> Path:
        return Path(self.targets[number]) if number in self.targets else self._directory / "0" / "0" / "0"

    def new_in(self, root: Path) -> list[tuple[int, str]]:
        """Returns the folders of a home that have no number yet, with their times in ns."""
        directory = root / self._directory.name
        targets = (f"{directory}/{name}" for name in os.listdir(directory) if ID.fullmatch(name))  # noqa: PTH208
        new = []
        for target in targets:
            if target not in self._numbers:
                with contextlib.suppress(FileNotFoundError):
                    new.append((os.stat(target).st_mtime_ns, target))  # noqa: PTH116  (20,000 of them)
        return new

    def add(self, found: Iterable[tuple[int, str]]) -> None:
        """Gives numbers to folders that have none, in the order of their times."""
        new = sorted(each for each in found if each[1] not in self._numbers)
        if not new:
            return
        with file_lock(self._directory.parent / GATHERING_LOCK):
            self._read()  # another process may have added some
            number = max(self.targets, default=0)
            for _, target in new:
                if target not in self._numbers:
                    number += 1
                    os.symlink(target, self._directory / str(number))  # noqa: PTH211  (20,000 of them)
                    self.targets[number], self._numbers[target] = target, number

    def _read(self) -> None:
        with os.scandir(self._directory) as entries:
            names = [entry.name for entry in entries if ID.fullmatch(entry.name)]
        for number in {*map(int, names)} - self.targets.keys():
            self.targets[number] = os.readlink(f"{self._directory}/{number}")  # noqa: PTH115  (as above)
        self._numbers = {target: number for number, target in self.targets.items()}


@dataclass(frozen=True)
class _Contents:
    new: Mapping[Kind, list[tuple[int, str]]]
    """The folders of the home that have no number here yet, with their times in ns."""
    is_own: bool


@dataclass
class _Source:
    """A home that is gathered, which a thread looks at. A file system may let the thread wait for ever."""

    root: Path
    found: _Contents | None = None
    """The findings of the last look; None if the home is left out, or is none."""
    problem: str = ""
    """The reason for which the home is left out, if there is one to tell."""
    _thread: threading.Thread | None = None
    _has_begun: threading.Event = field(default_factory=threading.Event)
    _answer: tuple[_Contents | None, str] = (None, "")

    def begin_look(self, links: Mapping[Kind, _Links]) -> None:
        if self._thread is None:
            self._has_begun.clear()
            self._thread = threading.Thread(target=self._look, args=(links,), daemon=True)
            self._thread.start()

    def await_look(self, deadline: float) -> None:
        assert self._thread is not None  # noqa: S101  (`begin_look` has been called)
        # One that was slow before is not waited for again: it is there once it has answered.
        if self._has_begun.wait(0 if self.problem == _SLOW else max(0.0, deadline - time.monotonic())):
            self._thread.join(_LONGEST_S)
        if self._thread.is_alive():
            self.found, self.problem = None, _SLOW
        else:
            self._thread = None
            self.found, self.problem = self._answer

    def _look(self, links: Mapping[Kind, _Links]) -> None:
        """Sets the answer. Whoever waits learns early that the home's file system answers at all."""
        try:
            self._answer = self._contents(links), ""
        except HomeTooNewError as error:
            self._answer = None, f"it is of a newer version, with format {error.format_found}"
        except (RecordDamagedError, OSError) as error:
            self._answer = None, getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        finally:
            self._has_begun.set()

    def _contents(self, links: Mapping[Kind, _Links]) -> _Contents | None:
        home = Home(self.root)
        try:
            if not home.record.exists():
                return None
        except PermissionError:
            return None  # somebody's, and not even its name is for us
        record = read_file(home.record, HomeRecord)
        self._has_begun.set()
        if record is not None and record.format > FORMAT:
            raise HomeTooNewError(home.root, record.format, FORMAT)
        # Trials come first, as in `links`: a trial is made after its experiment.
        return _Contents({kind: each.new_in(self.root) for kind, each in links.items()}, is_own(self.root))


_SLOW = f"it does not answer within {_PATIENCE_S:g} s"


def _expanded(pattern: Path) -> Iterator[Path]:
    """Yields the paths that match. What follows the last `*`, `?` or `[` is not looked at."""
    parts = pattern.parts
    num_matched = max((index for index, part in enumerate(parts, 1) if glob.has_magic(part)), default=0)
    if num_matched == 0:
        yield pattern
        return
    for found in glob.glob(str(Path(*parts[:num_matched]))):  # noqa: PTH207  (`Path.glob` looks at each)
        yield Path(found, *parts[num_matched:])


@functools.cache
def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
