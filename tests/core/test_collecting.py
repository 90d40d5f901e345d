"""A script says with its storage which checkpoints to keep, and its end applies that."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from saving import checkpoint_ids

from core_sdk import client, core
from core_sdk._ground.records import CheckpointBegun, CheckpointStored, RetentionPolicy, encode_file
from core_sdk._home import Home
from core_sdk._home.attempts.claiming import new_record
from core_sdk._home.history import read_history
from core_sdk._home.journal import read_records
from core_sdk._home.storage import DirectoryStorage
from core_sdk.core import Context


def storage(tmp_path: Path, **policy: int) -> dict[str, Any]:
    return {"type": "directory", "container_path": str(tmp_path / "checkpoints"), **policy}


def store(context: Context, steps: int) -> str:
    with context.checkpoint.store_path({"steps_completed": steps}) as (path, storage_id):
        (path / "weights.bin").write_bytes(b"weights")
    return storage_id


def stored(tmp_path: Path) -> list[str]:
    return checkpoint_ids(DirectoryStorage(tmp_path / "checkpoints"))


def test_the_end_of_a_completed_attempt_applies_the_policy(home: Home, tmp_path: Path) -> None:
    """Without a known metric, the policy keeps the validated checkpoint and the latest one."""
    with core.init(name="digits", checkpoint_storage=storage(tmp_path)) as context:
        _, validated, _, latest = (store(context, steps) for steps in (10, 20, 30, 40))
        context.train.report_validation_metrics(20, {"loss": 0.5})

    assert set(stored(tmp_path)) == {validated, latest}
    assert home.experiment(1).read().retention == RetentionPolicy()


def test_an_attempt_that_fails_deletes_nothing(home: Home, tmp_path: Path) -> None:
    """A failed attempt deletes no checkpoints, since a person may inspect or resume it."""
    with pytest.raises(RuntimeError), core.init(name="digits", checkpoint_storage=storage(tmp_path)) as context:
        for steps in (10, 20):
            store(context, steps)
        raise RuntimeError("lost")

    assert len(stored(tmp_path)) == 2


def test_a_path_has_no_policy(home: Home, tmp_path: Path) -> None:
    """A storage path alone keeps all checkpoints, and the policy of the newest init() is the valid one."""
    with core.init(name="digits", checkpoint_storage=storage(tmp_path)):
        pass
    with core.init(name="digits", checkpoint_storage=str(tmp_path / "checkpoints")) as context:
        for steps in (10, 20):
            store(context, steps)

    assert len(stored(tmp_path)) == 2
    assert home.experiment(1).read().retention is None


@pytest.mark.parametrize(("number", "kind"), [(-1, ValueError), (True, TypeError), ("1", TypeError)])
def test_a_policy_that_makes_no_sense_is_refused(
    home: Home, tmp_path: Path, number: Any, kind: type[Exception]
) -> None:
    """A bad policy is refused by its key before a trial is made."""
    with pytest.raises(kind, match="save_trial_best"):
        core.init(checkpoint_storage=storage(tmp_path, save_trial_best=number))

    assert home.trial_ids() == []


def test_trouble_while_collecting_is_a_warning(home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A failure to collect checkpoints is a warning and does not fail the training."""
    (home.runs / "7").mkdir(parents=True)
    (home.runs / "7" / "trial.json").write_text("{")

    with (
        pytest.warns(RuntimeWarning, match="not collected"),
        caplog.at_level(logging.WARNING),
        core.init(checkpoint_storage=storage(tmp_path, save_trial_best=0)) as context,
    ):
        for steps in (10, 20):
            store(context, steps)

    assert len(stored(tmp_path)) == 2
    assert "trial.json" in caplog.text


def test_a_save_is_announced_before_it_is_whole(home: Home, tmp_path: Path) -> None:
    """The start of a save is recorded first, so that collection finds what a kill leaves behind."""
    with core.init(checkpoint_storage=str(tmp_path / "checkpoints")) as context:
        store(context, 10)
        (tmp_path / "source").mkdir()
        context.checkpoint.upload(tmp_path / "source", {"steps_completed": 20})

    told = [
        (type(record), record.storage_id)
        for record in read_records(home.trial(1).journal_path(1))
        if isinstance(record, (CheckpointBegun, CheckpointStored))
    ]
    assert [kind for kind, _ in told] == [CheckpointBegun, CheckpointStored] * 2
    assert [storage_id for _, storage_id in told[::2]] == [storage_id for _, storage_id in told[1::2]]


def test_what_nobody_else_needs_is_released(home: Home) -> None:
    """Pinned checkpoints, model versions and checkpoints with which another trial began are not released."""
    with core.init() as context:
        pinned, registered, continued, released = (store(context, steps) for steps in (1, 2, 3, 4))
        client.get_checkpoint(pinned).pin()
        client.create_model("digits").register_version(registered)
        record = new_record(home.create_trial(), experiment_id=1)
        record.continued_from = continued
        home.folder(record.trial_id).write_record(record)

        answers = [context.checkpoint.release(each) for each in (pinned, registered, continued, released)]

    assert answers == [False, False, False, True]
    assert [each.record.storage_id for each in read_history(home.trial(1)).checkpoints] == [
        pinned,
        registered,
        continued,
    ]


def test_what_the_policy_keeps_for_ever_is_not_released(home: Home) -> None:
    """A checkpoint that `keep_every` keeps is not released, and stays when the attempt is completed."""
    with core.init(checkpoint_storage={"keep_every": {"steps": 10}}) as context:
        ids = [store(context, steps) for steps in (5, 12, 15, 21, 22)]

        answers = [context.checkpoint.release(each) for each in ids[:4]]

    assert answers == [True, False, True, False]
    assert [each.record.steps_completed for each in read_history(home.trial(1)).checkpoints] == [12, 21, 22]


def test_what_other_trials_need_is_noticed_although_they_were_idle_before(home: Home) -> None:
    """A release reads other trials again only if there is a new attempt, trial or deletion."""
    with core.init(job_id="other"):
        pass
    for path in (home.runs / "1", *(home.runs / "1").iterdir()):
        os.utime(path, (0, 0))  # the trial has ended long ago
    with core.init() as context:
        first, unread, used, continued = (store(context, steps) for steps in (1, 2, 3, 4))
        assert context.checkpoint.release(first)
        path, record = home.trial(1).path / "trial.json", home.trial(1).read_record()
        # It is written in place, as nobody else does, so that the folder stays as it is.
        path.write_bytes(encode_file(msgspec.structs.replace(record, continued_from=unread)))
        assert context.checkpoint.release(unread)
        path.write_bytes(encode_file(record))

        with core.init(job_id="other") as other:
            other.experimental.report_task_using_checkpoint(client.get_checkpoint(used))
            assert not context.checkpoint.release(used)
        record = new_record(home.create_trial(), experiment_id=1)
        record.continued_from = continued
        home.folder(record.trial_id).write_record(record)
        assert not context.checkpoint.release(continued)
        home.folder(record.trial_id).clear()

        assert [context.checkpoint.release(each) for each in (used, continued)] == [True, True]


def test_an_attempt_releases_what_it_resumed_from(home: Home) -> None:
    """An attempt may release the checkpoint from which it resumed."""
    with core.init(job_id="one") as context:
        first = store(context, 1)
    with core.init(job_id="one") as context:
        store(context, 2)

        assert context.checkpoint.release(first)
        assert context.checkpoint.release(first)  # a call that was cut short is repeated
