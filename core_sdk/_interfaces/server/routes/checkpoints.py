"""Checkpoints: what there is, and the files of one."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import msgspec
from starlette.background import BackgroundTask
from starlette.responses import FileResponse

from core_sdk._ground.records import RetentionPolicy, SearcherMetric
from core_sdk._home.rows import CheckpointRow
from core_sdk._interfaces.server.errors import RequestError
from core_sdk._interfaces.server.route import Cursor, Id, Query, Text, page_of
from core_sdk._interfaces.server.shared_view import SharedView

StorageId = Annotated[str, msgspec.Meta(max_length=200)]


class CheckpointsQuery(Query, frozen=True):
    experiment: Id | None = None
    trial: Id | None = None
    deleted: bool = False
    """Whether to list also those that were deleted."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 200
    cursor: Cursor = 0


class CheckpointsAnswer(msgspec.Struct, frozen=True):
    checkpoints: list[CheckpointRow]
    num_found: int
    size_bytes: int
    """The size of all that were found and exist."""
    metric: str | None
    """The searcher's, if there is one: each checkpoint has in `metrics` what was validated at its step."""
    next: int | None


class KeptAnswer(msgspec.Struct, frozen=True):
    storage_id: str
    is_kept: bool
    reasons: list[str]


class RetentionAnswer(msgspec.Struct, frozen=True):
    has_policy: bool
    """False if the experiment has no policy: then all checkpoints are kept."""
    policy: RetentionPolicy | None
    metric: SearcherMetric | None
    """The one that says which checkpoint is better."""
    checkpoints: list[KeptAnswer]
    problems: list[str]
    """Storages that cannot be reached."""


class CheckpointFileQuery(Query, frozen=True):
    name: Text
    """The name of one of the checkpoint's `resources`."""


def checkpoints(shared: SharedView, query: CheckpointsQuery) -> CheckpointsAnswer:
    """Returns the checkpoints of an experiment or of a trial, the newest first."""
    if query.experiment is None and query.trial is None:
        raise RequestError(400, "bad_parameter", "give the experiment or the trial whose checkpoints are wanted")
    rows = shared.ask(lambda view: view.checkpoints(trial_id=query.trial, experiment_id=query.experiment))
    found = [row for row in rows if query.deleted or row.state != "DELETED"]
    page, cursor = page_of(found, query.cursor, query.limit)
    size_bytes = sum(row.size_bytes for row in found if row.state != "DELETED")
    experiment_id = query.experiment or (rows[0].experiment_id if rows else None)
    metric = None if experiment_id is None else shared.home.experiment(experiment_id).read().searcher_metric
    return CheckpointsAnswer(page, len(found), size_bytes, metric.name if metric else None, cursor)


def checkpoint(shared: SharedView, storage_id: StorageId) -> CheckpointRow:
    """Returns one checkpoint, with its files and metadata."""
    return shared.ask(lambda view: view.checkpoint(storage_id))


def retention(shared: SharedView, experiment_id: Id) -> RetentionAnswer:
    """Returns which checkpoints of an experiment its policy keeps, and why."""
    from core_sdk._home.deletion.collection import Collector, Request  # storages, which other questions do not need

    with Collector(shared.home, Request(experiment_id=experiment_id)) as collector:
        plan = collector.plan()
    rules = plan.rules.get(experiment_id)
    return RetentionAnswer(
        rules is not None,
        rules.policy if rules else None,
        rules.metric if rules else None,
        [KeptAnswer(one.storage_id, one.is_kept, list(one.reasons)) for one in plan.verdicts],
        list(plan.problems),
    )


def download(shared: SharedView, storage_id: StorageId, query: CheckpointFileQuery) -> FileResponse:
    """Returns one file of a checkpoint, verified, as an attachment."""
    from core_sdk._home.storage import storage_from_url

    row = checkpoint(shared, storage_id)
    if query.name not in row.resources or query.name.endswith("/"):
        raise RequestError(404, "no_such_file", "the checkpoint has no file of this name")
    shared.check_reach(row.storage)
    directory = Path(tempfile.mkdtemp(prefix="core-sdk-download-"))
    try:
        storage = storage_from_url(row.storage)
        try:
            storage.download(row.storage_id, directory, lambda name: name == query.name)
        finally:
            storage.close()
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    # The storage has checked that the name stays within the directory.
    return FileResponse(
        directory / query.name,
        media_type="application/octet-stream",
        headers={"content-disposition": f"attachment; filename*=UTF-8''{quote(Path(query.name).name, safe='')}"},
        background=BackgroundTask(shutil.rmtree, directory, ignore_errors=True),
    )
