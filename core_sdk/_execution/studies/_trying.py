"""Begins tries: the code as it is now, the trials that run it, and their places in the line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from core_sdk._execution.experiments.code import unpack_for_trial
from core_sdk._execution.studies._archived import change_digest, diff_of
from core_sdk._execution.studies._editable import editable_directories
from core_sdk._execution.studies._line import TrialInLine, forget, this_host, write_waiting
from core_sdk._execution.studies._serving import ensure_served
from core_sdk._execution.studies._snapshot import CodeSnapshot, commit, in_copy, take_snapshot
from core_sdk._ground.alive import file_lock
from core_sdk._ground.environment import recorded_variables
from core_sdk._ground.records import CodeRecord, CommandRecord, SearcherMetric, StudyRecord, TrialDescription
from core_sdk._home import Home, TrialFolder, open_view
from core_sdk._home.attempts.command import resolve
from core_sdk._home.attempts.definition import checked_description, recordable_hparams
from core_sdk._home.attempts.starting import queue_trial
from core_sdk._home.finding.similar import Likeness, NewTry, most_alike
from core_sdk._home.finding.tries import Tries, Try, read_tries
from core_sdk._home.sources import SUFFIXES, SourceArchive
from core_sdk.errors import TrialNotFoundError

_NOT_IN_REFS = re.compile(r"[^\w.-]+|\.\.|^\.|\.$")


@dataclass(frozen=True)
class TryRequest:
    """A try as somebody asks for it."""

    hypothesis: str
    directory: Path
    author: str
    command: Sequence[str] = ()
    """Empty for that of the study."""
    hparams: Mapping[str, Any] | None = None
    parent: int | None = None
    """A trial of the try that is varied; None for the best that was kept, or else the first."""
    has_no_parent: bool = False
    num_seeds: int | None = None
    is_again: bool = False
    """Whether it is begun although something like it was tried; an equal try gets more seeds."""
    is_stopped_if_behind: bool = False


@dataclass(frozen=True)
class TryBegun:
    """A try that was begun."""

    try_id: int
    trial_ids: Sequence[int]
    """The trials that were begun now; not those with which an equal try had begun."""
    parent: int | None
    commit: str
    is_repeated: bool


@dataclass(frozen=True)
class AlreadyTried:
    """The answer if something like it was tried before, so that nothing was begun."""

    likeness: Likeness
    known: Try
    tries: Tries


def begin_try(home: Home, experiment_id: int, study: StudyRecord, request: TryRequest) -> TryBegun | AlreadyTried:
    """Begins a try of the code as it is now.

    Raises `CommandError`, `CodeDirectoryError`, `ExperimentError`, `TrialNotFoundError` for a parent that is no try of
    the study, `InvalidNameError`, or `ValueError` without a command.
    """
    argv = list(request.command or study.command)
    if not argv:
        raise ValueError("give the command of the try, after `--`: the study has none of its own")
    snapshot = take_snapshot(home, request.directory)
    hparams = recordable_hparams(request.hparams or {})
    experiment = home.experiment(experiment_id)
    with file_lock(experiment.path / "tries.lock"):  # two who try the same at once are told
        with open_view(home) as view:
            tries = read_tries(view, experiment_id, SearcherMetric.named(study.best_by))
        parent = _parent(home, tries, request)
        code = CodeRecord(sha256=snapshot.packed.sha256, directory=snapshot.directory)
        if parent is not None and parent.row.code is not None:
            change = change_digest(diff_of(home, parent.row.code, code, 0))
            code = msgspec.structs.replace(code, change=change)
        same = [each for each in tries.by_id.values() if _has_code_like(each, code)]
        commands = {each.try_id: _command_of(home, each) for each in same}
        alike = most_alike(
            NewTry(request.hypothesis, code, _told(argv, snapshot.root), hparams), tries.by_id.values(), commands
        )
        if alike is not None and not request.is_again:
            return AlreadyTried(*alike, tries)
        repeated = alike[1] if alike is not None and alike[0] == "equal" else None
        return _begin(home, experiment_id, study, request, snapshot, code, argv, hparams, parent, repeated)


def _begin(
    home: Home,
    experiment_id: int,
    study: StudyRecord,
    request: TryRequest,
    snapshot: CodeSnapshot,
    code: CodeRecord,
    argv: list[str],
    hparams: Mapping[str, Any],
    parent: Try | None,
    repeated: Try | None,
) -> TryBegun:
    described = checked_description(
        TrialDescription(
            parent=None if parent is None else parent.try_id,
            hypothesis=request.hypothesis,
            best_by=study.best_by,
            time_limit_s=study.budget_s,
            author=request.author,
        )
    )
    first_seed = 0
    if repeated is not None:
        row = repeated.row
        described = msgspec.structs.replace(described, parent=row.parent, hypothesis=row.hypothesis, try_id=row.try_id)
        first_seed = 1 + max(each.row.seed for each in repeated.trials)
    count = study.num_seeds if request.num_seeds is None else request.num_seeds
    num_known = 0 if repeated is None else len(repeated.trials)
    folders = [home.create_trial() for _ in range(count)]
    try_id = described.try_id or folders[0].trial_id
    left = [*folders]
    try:
        for folder in folders:  # so that whoever serves the line tidies up if this process is killed
            write_waiting(
                home,
                TrialInLine(
                    trial_id=folder.trial_id,
                    host=this_host(),
                    author=request.author,
                    num_slots=study.num_slots,
                    is_stopped_if_behind=request.is_stopped_if_behind,
                ),
            )
        # All that is large is written before the first trial is visible: the disk may be full.
        copies = [unpack_for_trial(home, code.sha256, folder) for folder in folders]
        for folder, copy in zip(folders, copies, strict=True):
            _keep_sources(folder, snapshot, copy)
        if repeated is not None and repeated.row.code is not None:
            code = msgspec.structs.replace(code, commit=repeated.row.code.commit)
        else:
            ref = f"refs/core-sdk/{_NOT_IN_REFS.sub('-', home.experiment(experiment_id).read().name)}/{try_id}"
            varied = parent.row.code.commit if parent is not None and parent.row.code is not None else ""
            message = request.hypothesis or f"try {try_id}"
            made = commit(snapshot, copies[0], ref, message, request.author, varied)
            code = msgspec.structs.replace(code, commit=made)
        linked = [snapshot.link_others(copy, home.root) for copy in copies]
        described = msgspec.structs.replace(
            described, try_id=try_id, code=msgspec.structs.replace(code, linked=linked[0]), num_seeds=num_known + count
        )
        for index, (folder, copy) in enumerate(zip(folders, copies, strict=True)):
            queue_trial(
                folder,
                experiment_id,
                _command(argv, snapshot, copy),
                described,
                hparams=hparams,
                seed=first_seed + index,
                num_slots=study.num_slots,
            )
            left.remove(folder)
    except BaseException:
        for folder in left:  # the others run already, and an alarm says how many are missing
            forget(home, folder.trial_id)
            folder.clear()
        raise
    finally:
        ensure_served(home)
    return TryBegun(try_id, [each.trial_id for each in folders], described.parent, code.commit, repeated is not None)


def _command(argv: Sequence[str], snapshot: CodeSnapshot, copy: Path) -> CommandRecord:
    """Returns the command of a trial, which runs in a copy of the code."""
    cwd = copy / snapshot.directory
    environment = recorded_variables()
    path = environment.get("PYTHONPATH", "")
    entries = [str(Path(each).absolute()) for each in path.split(os.pathsep) if each]
    own = [each for each in map(str, editable_directories(snapshot.root)) if each not in entries]
    copied = [each for each in in_copy(own, snapshot.root, copy) if each not in own]  # others are linked, or no code
    if entries or copied:
        environment["PYTHONPATH"] = os.pathsep.join([*copied, *in_copy(entries, snapshot.root, copy)])
    command = resolve(in_copy(argv, snapshot.root, copy), cwd, environment.get("PATH"))
    return CommandRecord(argv=command, cwd=str(cwd), environment=environment)


def _told(argv: Sequence[str], root: Path) -> tuple[str, ...]:
    """Returns a command in a form that is the same in every copy of the code."""
    told = []
    for index, word in enumerate(argv):
        path = Path(word)
        is_inside = path.is_absolute() and path.is_relative_to(root)
        told.append(path.name if index == 0 else str(path.relative_to(root)) if is_inside else word)
    return tuple(told)


def _has_code_like(one: Try, code: CodeRecord) -> bool:
    """Returns whether a try has the same code, or the same change: of no other one the command matters."""
    known = one.row.code
    return known is not None and (known.sha256 == code.sha256 or (code.change != "" and known.change == code.change))


def _command_of(home: Home, one: Try) -> tuple[str, ...]:
    folder = home.folder(one.try_id)
    command = folder.read_command()
    return () if command is None else _told(command.argv, folder.code_path.absolute())


def _parent(home: Home, tries: Tries, request: TryRequest) -> Try | None:
    if request.has_no_parent or (request.parent is None and not tries.by_id):
        return None
    if request.parent is not None:
        try:
            return tries.of_trial(request.parent)
        except StopIteration:
            raise TrialNotFoundError(request.parent, home.root) from None
    kept = [one for one in tries.by_id.values() if one.row.verdict == "keep"]
    return kept[-1] if kept else next(iter(tries.by_id.values()))


def _keep_sources(folder: TrialFolder, snapshot: CodeSnapshot, copy: Path) -> None:
    """Keeps the text files of the code with the trial, so that its evidence can show what was changed."""
    where = copy / snapshot.directory
    archive = SourceArchive()
    archive.add(
        {os.path.relpath(copy / name, where): copy / name for name in snapshot.names if Path(name).suffix in SUFFIXES}
    )
    archive.write(folder.sources_path)
