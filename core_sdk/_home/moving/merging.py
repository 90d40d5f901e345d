"""Takes the trials of another home into this one, under new ids. The other home is only read.

A trial's folder is copied as it is, and only what names its id is written again. A trial is known again by the id that
it had first, the time at which it was made, and its seed, so that nothing comes twice; what it has recorded there since
is taken as `growth` says. Each trial is made aside and then renamed into its place: whatever is killed, both homes are
sound, and the next merge takes what is missing.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from core_sdk._ground.alive import file_lock, is_alive
from core_sdk._ground.files import fsync_directory, fsync_tree, write_atomically
from core_sdk._ground.ownership import share_as_parent
from core_sdk._ground.records import CheckpointStored, TrialNumbered, TrialRecord, encode_file
from core_sdk._home.attempts.ending import read_end
from core_sdk._home.folders import ExperimentFolder, Home, TrialFolder
from core_sdk._home.history import read_history
from core_sdk._home.journal import decode_line, encode_line
from core_sdk._home.moving.growth import NOT_COPIED, WRITTEN_ANEW, find_growth, move_into, writer_of
from core_sdk._home.next_attempt import claimed_next_attempt
from core_sdk._home.registry import Registry
from core_sdk._home.storage import DirectoryStorage
from core_sdk._home.storages import path_inside
from core_sdk.errors import CheckpointNotFoundError, CoreSDKError, RecordDamagedError, TrialNotFoundError


@dataclass
class Merged:
    """The result of a merge. Trials are mapped from their ids there to their ids here."""

    taken: dict[int, int] = field(default_factory=dict)
    known: dict[int, int] = field(default_factory=dict)
    """Trials that were here already."""
    grown: list[int] = field(default_factory=list)
    """Of these, by their ids there, those of which more was taken now."""
    unended: list[int] = field(default_factory=list)
    """Trials that were taken, by their ids there, and may have been training when their home was copied."""
    left: list[str] = field(default_factory=list)
    """What was not taken, each with the reason."""


def merge(home: Home, other: Home) -> Merged:
    """Takes the trials, the ended experiments and the models of another home that are not here yet.

    Raises `RecordDamagedError` for the record of a model, and `OSError` if something cannot be read or written.
    """
    with merging(home) as aside:
        return merge_aside(home, other, aside)


@contextlib.contextmanager
def merging(home: Home) -> Iterator[Path]:
    """Gives an empty directory of the home, to make things aside. One process at a time has it."""
    aside = home.root / "merging"
    with file_lock(home.root / "merge.lock"):
        shutil.rmtree(aside, ignore_errors=True)  # what a merge that was killed has left
        aside.mkdir(mode=0o700)
        try:
            yield aside
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def merge_aside(home: Home, other: Home, aside: Path) -> Merged:
    """Does the same as `merge`, for a caller that is `merging`."""
    return _Merge(home, other, aside).carry_out()


class _Merge:
    def __init__(self, home: Home, other: Home, aside: Path) -> None:
        self._home = home
        self._other = other
        self._aside = aside
        self._merged = Merged()
        self._here = {_key(record): record.trial_id for record in _readable_trials(home)}
        self._experiments: dict[int, int] = {}
        """The ids here of the experiments that were taken, by their ids there."""
        self._allotted: dict[int, int] = {}
        """The ids here of trials of submitted experiments, whose events name them, by their ids there."""

    def carry_out(self) -> Merged:
        for experiment_id in self._other.experiment_ids():
            with self._leaving(f"experiment {experiment_id}"):
                self._take_experiment(self._other.experiment(experiment_id))
        for trial_id in self._other.trial_ids():
            with self._leaving(f"trial {trial_id}"):
                self._take_trial(self._other.folder(trial_id))
        self._take_models()
        return self._merged

    @contextlib.contextmanager
    def _leaving(self, what: str) -> Iterator[None]:
        """Leaves out what cannot be taken, and says why."""
        try:
            yield
        except (CoreSDKError, shutil.Error, PermissionError) as error:
            self._merged.left.append(f"{what}: {error}")

    def _take_experiment(self, there: ExperimentFolder) -> None:
        record = there.read()
        if record.is_submitted:
            if record.search is None or not record.search.has_ended:
                self._merged.left.append(f"experiment {there.experiment_id} and its trials: it has not ended there")
                return
            self._experiments[there.experiment_id] = self._take_submitted(there)
            return
        here = self._home.find_or_create_experiment(record.name)
        with here.edit() as kept:
            kept.labels = list(dict.fromkeys([*kept.labels, *record.labels]))
            kept.description = kept.description or record.description
            kept.notes = kept.notes or record.notes
            kept.searcher_metric = kept.searcher_metric or record.searcher_metric
            kept.study = kept.study or record.study
        self._experiments[there.experiment_id] = here.experiment_id

    def _take_submitted(self, there: ExperimentFolder) -> int:
        record, events, local = there.read(), there.events_path.read_bytes(), there.local_trials()
        first_id = record.first_id or record.experiment_id
        for experiment_id in self._home.experiment_ids():
            with contextlib.suppress(RecordDamagedError):
                known = self._home.experiment(experiment_id).read()
                if known.is_submitted and (known.first_id or experiment_id, known.created) == (
                    first_id,
                    record.created,
                ):
                    here = self._home.experiment(experiment_id)
                    local_here = here.local_trials()
                    created = _created(here.events_path.read_bytes())
                    ids_here = {each.request_id: local_here(each.trial_id) for each in created}
                    for each in _created(events):
                        if ids_here.get(each.request_id):
                            self._allotted[local(each.trial_id)] = ids_here[each.request_id]
                    return experiment_id
        here = self._home.allot_experiment()
        for each in _created(events):
            self._allotted[local(each.trial_id)] = self._home.create_trial().trial_id
        self._take_code(there.read_submission().code)
        for path in there.files:
            if path not in (there.record_path, there.events_path, there.numbers_path) and path.exists():
                write_atomically(here.path / path.name, path.read_bytes())
        write_atomically(here.events_path, self._with_ids(events, local))
        # The record is the last file, since it makes the experiment visible.
        parent = None if record.parent is None else self._experiments.get(record.parent)
        here.write(msgspec.structs.replace(record, experiment_id=here.experiment_id, first_id=first_id, parent=parent))
        return here.experiment_id

    def _take_code(self, sha256: str | None) -> None:
        if sha256 is None or self._home.code_archive(sha256).exists():
            return
        archive = self._other.code_archive(sha256)
        self._home.code.mkdir(mode=0o700, exist_ok=True)
        if archive.exists():
            write_atomically(self._home.code_archive(sha256), archive.read_bytes())

    def _with_ids(self, events: bytes, local: Callable[[int], int]) -> bytes:
        """Returns the journal of events with the trials' ids here. All other lines are as they were."""
        lines = events.split(b"\n")
        for index, line in enumerate(lines):
            for event in _created(line):
                renumbered = msgspec.structs.replace(event, trial_id=self._allotted[local(event.trial_id)])
                lines[index] = encode_line(renumbered).rstrip(b"\n")
        return b"\n".join(lines)

    def _take_growth(self, there: TrialFolder, here: TrialFolder, record: TrialRecord) -> None:
        """Takes what the trial has there in addition to what was taken of it before."""
        if there.running_attempt() is not None:
            self._merged.left.append(f"trial {there.trial_id}: it is running there. Repeat the merge when it has ended")
            return
        self._take_checkpoints(there, read_history(here).gone)
        stored = (checkpoint.record for checkpoint in read_history(here).checkpoints)
        present = {one.storage_id for one in stored if self._is_here(one)}
        growth = find_growth(there, here, present)
        self._merged.left += growth.left
        experiment_id = self._experiment_of(there, record) if growth.is_ahead else None
        if not growth or (growth.is_ahead and experiment_id is None):
            return
        names = [name for name in growth.names if self._is_free(there, here, name)]
        made = self._aside / str(here.trial_id)
        for name in names:
            (made / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copy2(there.path / name, made / name, follow_symlinks=False)
        if experiment_id is not None:
            self._write_anew(there, here, made, self._renumbered(record, here, experiment_id))
            names = [path.name for path in made.iterdir() if path.is_file() and path.name not in names] + names
        is_of_others = all(writer_of(name) or name.startswith("media/") for name in names)
        with contextlib.nullcontext() if is_of_others else claimed_next_attempt(here, "extend"):
            move_into(made, names, here.path)
        if growth.changes:
            here.append_changes(growth.changes)
        if names or growth.changes:
            self._merged.grown.append(there.trial_id)

    def _is_free(self, there: TrialFolder, here: TrialFolder, name: str) -> bool:
        """Returns whether a file may be taken: no writer writes it. If one does, the file is named."""
        writer = writer_of(name)
        for folder, where in ((there, "there"), (here, "here")):
            if writer is not None and is_alive(folder.writer_path(writer)):
                self._merged.left.append(f"writer {writer} of trial {there.trial_id}: it is writing {where}")
                return False
        return True

    def _is_here(self, record: CheckpointStored) -> bool:
        """Returns whether the files of a checkpoint are here, or lie in a storage elsewhere."""
        inside = path_inside(self._home, record.storage)
        return inside is None or (self._home.root / inside / record.storage_id).exists()

    def _take_trial(self, there: TrialFolder) -> None:
        record = there.read_record()
        if (known := self._here.get(_key(record))) is not None:
            self._merged.known[there.trial_id] = known
            self._take_growth(there, self._home.folder(known), record)
            return
        if (experiment_id := self._experiment_of(there, record)) is None:
            return
        attempts = there.attempts()
        if there.running_attempt() is not None:
            self._merged.left.append(f"trial {there.trial_id}: it is running there. Repeat the merge when it has ended")
            return
        self._take_code(None if record.code is None else record.code.sha256)
        allotted = self._allotted.get(there.trial_id)
        here = self._home.create_trial() if allotted is None else self._home.folder(allotted)
        made = self._aside / str(here.trial_id)
        shutil.copytree(there.path, made, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED, *WRITTEN_ANEW))
        self._write_anew(there, here, made, self._renumbered(record, here, experiment_id))
        self._take_checkpoints(there)
        if there.attempts() != attempts or there.running_attempt() is not None:
            self._merged.left.append(f"trial {there.trial_id}: it was started there meanwhile")
            return
        fsync_tree(made)
        here.path.mkdir(mode=0o700, exist_ok=True)
        made.rename(here.path)
        share_as_parent(here.path)
        fsync_directory(here.path.parent)
        self._merged.taken[there.trial_id] = here.trial_id
        if attempts and (end := read_end(here, None)).outcome is None and end.exit_code is None:
            self._merged.unended.append(there.trial_id)

    def _experiment_of(self, there: TrialFolder, record: TrialRecord) -> int | None:
        """Returns the id here of the trial's experiment; None if that was left, which is named."""
        experiment_id = self._experiments.get(record.experiment_id)
        if experiment_id is None and record.experiment_id not in self._other.experiment_ids():
            self._merged.left.append(f"trial {there.trial_id}: its experiment {record.experiment_id} is missing")
        return experiment_id

    def _renumbered(self, record: TrialRecord, here: TrialFolder, experiment_id: int) -> TrialRecord:
        return msgspec.structs.replace(
            record,
            trial_id=here.trial_id,
            experiment_id=experiment_id,
            first_id=_key(record)[0],
            parent=self._id_here(record.parent),
            started_by=self._id_here(record.started_by),
            try_id=here.trial_id if record.try_id == record.trial_id else self._id_here(record.try_id),
        )

    def _id_here(self, trial_id: int | None) -> int | None:
        """Returns the id here of an earlier trial; None if that was left there."""
        ids = self._merged.known | self._merged.taken
        return None if trial_id is None else ids.get(trial_id)

    def _write_anew(self, there: TrialFolder, here: TrialFolder, made: Path, record: TrialRecord) -> None:
        """Writes the files that name the trial's id. Damaged ones stay as they are."""
        for attempt in there.attempts():
            path = there.run_info_path(attempt)
            try:
                info = there.read_run_info(attempt)
            except RecordDamagedError:
                shutil.copy2(path, made)
                continue
            if info is not None and info.trial_or_none is not None:
                info.trial.trial_id, info.trial.experiment_id = record.trial_id, record.experiment_id
                info.task_id = f"trial-{record.trial_id}"
                info.allocation_id = f"{info.task_id}.{attempt}"
                write_atomically(made / path.name, encode_file(info))
        if (command := there.read_command()) is not None:
            code, own_code = str(there.code_path.absolute()), str(here.code_path.absolute())
            command.cwd = command.cwd.replace(code, own_code)
            command.argv = [argument.replace(code, own_code) for argument in command.argv]
            write_atomically(made / "command.json", encode_file(command))
        write_atomically(made / "trial.json", encode_file(record))

    def _take_checkpoints(self, there: TrialFolder, deleted_here: Set[str] = frozenset()) -> None:
        """Copies the trial's checkpoints in the other home. Those in other storages stay, and belong to that home."""
        for checkpoint in read_history(there).checkpoints:
            storage_id, inside = checkpoint.record.storage_id, path_inside(self._other, checkpoint.record.storage)
            if inside is None or storage_id in deleted_here or (self._home.root / inside / storage_id).exists():
                continue
            source, root = self._other.root / inside / storage_id, self._home.root / inside
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._leaving(f"checkpoint {storage_id} of trial {there.trial_id}"):
                if not source.exists():
                    raise CheckpointNotFoundError(storage_id, str(source.parent))
                with DirectoryStorage(root).receive(storage_id) as path:
                    shutil.copytree(source, path, symlinks=True, dirs_exist_ok=True)

    def _take_models(self) -> None:
        taken = {**self._merged.known, **self._merged.taken}
        listed = {
            each.record.storage_id
            for trial_id in taken.values()
            for each in read_history(self._home.folder(trial_id)).checkpoints
        }
        registry = Registry(self._home)
        for model in Registry(self._other).models():
            versions = [version for version in model.versions if version.checkpoint in listed]
            named = {each.name: each.model_id for each in registry.models()}
            if not versions and model.name in named:
                continue
            model_id = named.get(model.name)
            if model_id is None:
                model_id = registry.create(model.name, model.description, model.metadata, model.labels).model_id
            with registry.edit(model_id) as kept:
                known = {version.checkpoint for version in kept.versions}
                for version in versions:
                    if version.checkpoint not in known:
                        kept.last_version = max(version.version, kept.last_version + 1)
                        kept.versions.append(msgspec.structs.replace(version, version=kept.last_version))


def _key(record: TrialRecord) -> tuple[int, float, int]:
    """Returns what the trial keeps in whatever home it is."""
    return record.first_id or record.trial_id, record.created, record.seed


def _readable_trials(home: Home) -> Iterator[TrialRecord]:
    for trial_id in home.trial_ids():
        with contextlib.suppress(RecordDamagedError, TrialNotFoundError):
            yield home.folder(trial_id).read_record()


def _created(events: bytes) -> Iterator[TrialNumbered]:
    for line in events.split(b"\n"):
        if b'"trial_created"' in line:
            with contextlib.suppress(ValueError):  # damaged: readers of the journal name it
                event = decode_line(line)
                if isinstance(event, TrialNumbered):
                    yield event
