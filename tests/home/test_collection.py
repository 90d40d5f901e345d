"""Collection deletes what no rule keeps, and nothing else, whatever happens meanwhile."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import msgspec
import pytest
from client.trainings import Training
from filelock import FileLock
from interfaces.cli.recorded import damage, new_attempt, new_trial, store
from promises import promise
from saving import store_alone
from stage import stored_ids

from core_sdk._execution.steering import checkpoints
from core_sdk._ground.records import (
    CheckpointBegun,
    CheckpointCondemned,
    CheckpointPinned,
    CheckpointPruned,
    CheckpointStored,
    CheckpointUnpinned,
    CheckpointUsed,
    ClusterInfo,
    RetentionPolicy,
    SearcherMetric,
)
from core_sdk._home import Home, TrialFolder
from core_sdk._home.attempts.continuation import newest_good_checkpoint
from core_sdk._home.deletion._by_hand import recording
from core_sdk._home.deletion.collection import Collector, Request, Verdict, collect
from core_sdk._home.index import Index
from core_sdk._home.journal import read_records
from core_sdk._home.next_attempt import claimed_next_attempt
from core_sdk._home.storage import DirectoryStorage
from core_sdk.errors import (
    CheckpointNotFoundError,
    CheckpointProtectedError,
    HomeError,
    RecordDamagedError,
    TrialRunningError,
)

LATEST = {"save_experiment_best": 0, "save_trial_best": 0, "save_trial_latest": 1}


def states(home: Home) -> dict[str, str]:
    with Index(home) as index:
        index.refresh()
        return {row.storage_id: row.state for row in index.checkpoints()}


def collect_latest(home: Home) -> list[str]:
    """Collects by the latest policy and returns the ids of the deleted checkpoints."""
    return [verdict.storage_id for verdict in collect(home, Request(policy=LATEST)).deleted]


def reasons(home: Home) -> dict[str, str]:
    """Returns the reasons why each checkpoint is kept or deleted."""
    with Collector(home, Request(policy=LATEST)) as collector:
        return {verdict.storage_id: "; ".join(verdict.reasons) for verdict in collector.plan().verdicts}


def trial_with(home: Home, *storage_ids: str) -> TrialFolder:
    """Returns a trial that has ended, and stored these checkpoints at steps 10, 20, …"""
    folder = new_trial(home)
    training = new_attempt(folder)
    for number, storage_id in enumerate(storage_ids, start=1):
        store(training, storage_id, 10 * number)
    training.end()
    return folder


@pytest.fixture
def folder(home: Home) -> TrialFolder:
    return trial_with(home, "a", "b", "c")


@pytest.fixture
def running(home: Home) -> Iterator[Training]:
    """Yields a running trial of another experiment."""
    training = new_attempt(new_trial(home, experiment="other"))
    yield training
    training.die()


def test_the_recorded_policy_keeps_the_best_and_the_latest(home: Home) -> None:
    """Files and records agree on the rest, and the freed checkpoints are named."""
    folder = new_trial(home)
    training = new_attempt(folder)
    for storage_id, steps, loss in (("a", 10, 0.5), ("b", 20, 0.1), ("c", 30, 0.3), ("d", 40, None)):
        store(training, storage_id, steps)
        if loss is not None:
            training.report(steps, "validation", loss=loss)
    training.end()
    with home.experiment(1).edit() as record:
        record.retention, record.searcher_metric = RetentionPolicy(), SearcherMetric(name="loss")

    done = collect(home, Request())

    assert {verdict.storage_id for verdict in done.deleted} == {"a", "c"}
    assert stored_ids(home) == ["b", "d"]
    assert states(home) == {"a": "DELETED", "b": "COMPLETED", "c": "DELETED", "d": "COMPLETED"}


@pytest.mark.parametrize(("every", "kept"), [({"steps": 20}, ["b", "d", "e"]), ({"hours": 3}, ["c", "e"])])
def test_what_is_kept_for_ever_survives_each_collection(home: Home, every: dict[str, int], kept: list[str]) -> None:
    """Intervals are counted over all attempts, in steps or in hours from the beginning of the first."""
    folder = new_trial(home)
    with home.experiment(1).edit() as record:
        record.retention = RetentionPolicy.checked({"save_trial_best": 0, "keep_every": every})
    for attempt, storage_ids in enumerate(("ab", "cde")):
        training = new_attempt(folder, resumed_steps=20 * attempt)
        for number, storage_id in enumerate(storage_ids, start=1 + 2 * attempt):
            store(training, storage_id, 10 * number, hours=number)
        training.end()
        collect(home, Request())

    assert stored_ids(home) == kept


@promise("deletion-asked-for")
def test_without_a_policy_everything_is_kept(home: Home, folder: TrialFolder) -> None:
    """Without a policy no checkpoint is deleted."""
    done = collect(home, Request())

    assert done.deleted == ()
    assert stored_ids(home) == ["a", "b", "c"]


def test_numbers_given_now_stand_above_those_recorded(home: Home, folder: TrialFolder) -> None:
    """Numbers in the request override the recorded policy's."""
    with home.experiment(1).edit() as record:
        record.retention = RetentionPolicy(save_trial_best=0, save_trial_latest=1)

    collect(home, Request(policy={"save_trial_latest": 2}))

    assert stored_ids(home) == ["b", "c"]


def test_a_validation_by_another_attempt_makes_no_checkpoint_best(home: Home) -> None:
    """A validation by a later attempt at the same step does not make a checkpoint the best."""
    folder = new_trial(home)
    first = new_attempt(folder)
    store(first, "a", 10)
    first.die()
    second = new_attempt(folder, resumed_steps=10)
    second.report(10, "validation", loss=0.1)
    store(second, "b", 20)
    second.report(20, "validation", loss=0.5)
    second.end()

    collect(home, Request(policy={"save_trial_latest": 0}, metric="loss"))

    assert stored_ids(home) == ["b"]


def test_a_plan_deletes_nothing(home: Home, folder: TrialFolder) -> None:
    """A plan lists what would be kept or deleted and why, and changes nothing."""
    assert reasons(home) == {
        "a": "the policy does not keep it",
        "b": "the policy does not keep it",
        "c": "latest 1 of trial 1",
    }
    assert stored_ids(home) == ["a", "b", "c"]
    assert not folder.changes_path.exists()


def test_only_the_trial_asked_for_loses_checkpoints(home: Home, folder: TrialFolder) -> None:
    """With a trial in the request, only its checkpoints are deleted, though all are ranked."""
    trial_with(home, "d", "e")

    collect(home, Request(trial_id=2, policy=LATEST))

    assert stored_ids(home) == ["a", "b", "c", "e"]


def test_a_pin_holds_until_it_is_taken_away(home: Home, folder: TrialFolder) -> None:
    """A pinned checkpoint is kept, whatever the policy says, until it is unpinned."""
    folder.append_change(CheckpointPinned(time=time.time(), storage_id="a", note="paper"))
    pinned = reasons(home)["a"]
    collect_latest(home)
    kept = stored_ids(home)

    folder.append_change(CheckpointUnpinned(time=time.time(), storage_id="a"))
    collect_latest(home)

    assert pinned == "pinned: paper"
    assert kept == ["a", "c"]
    assert stored_ids(home) == ["c"]


def test_what_another_trial_began_with_stays(home: Home, folder: TrialFolder) -> None:
    """A checkpoint with which another trial began is kept, even across experiments."""
    new_trial(home, experiment="other", continued_from="b")

    collect_latest(home)

    assert stored_ids(home) == ["b", "c"]


def test_what_a_running_attempt_says_that_it_uses_stays(home: Home, folder: TrialFolder, running: Training) -> None:
    """A checkpoint that a running attempt uses is kept until that attempt ends."""
    running.append(CheckpointUsed(time=time.time(), storage_id="a"))
    collect_latest(home)
    kept = stored_ids(home)

    running.end()
    collect_latest(home)

    assert kept == ["a", "c"]
    assert stored_ids(home) == ["c"]


def test_what_an_attempt_that_is_being_started_continues_from_stays(
    home: Home, folder: TrialFolder, running: Training
) -> None:
    """The checkpoint in the run info of an attempt that is starting is kept."""
    running.folder.write_run_info(running.attempt, ClusterInfo(latest_checkpoint="b"))

    collect_latest(home)

    assert stored_ids(home) == ["b", "c"]


def test_nothing_of_a_running_trial_is_deleted(home: Home, folder: TrialFolder) -> None:
    """No checkpoint of a running trial is deleted, since it may be restoring any of them."""
    training = new_attempt(folder, resumed_steps=30)

    found = reasons(home)
    deleted = collect_latest(home)
    training.die()

    assert found["a"] == "attempt 2 of trial 1 is running"
    assert deleted == []
    assert stored_ids(home) == ["a", "b", "c"]


def test_an_attempt_can_collect_at_its_own_end(home: Home, folder: TrialFolder) -> None:
    """An attempt that is ending may collect its own trial while it holds its lock."""
    training = new_attempt(folder, resumed_steps=30)

    collect(home, Request(policy=LATEST, ended_trial=folder.trial_id))
    training.die()

    assert stored_ids(home) == ["c"]


def test_the_newest_good_checkpoint_of_a_trial_always_stays(home: Home, folder: TrialFolder) -> None:
    """The policy's latest is damaged: the newest that can be read stays, too."""
    damage(home, "c")

    found = reasons(home)
    collect_latest(home)

    assert found["b"] == "the only good checkpoint of trial 1"
    assert stored_ids(home) == ["b", "c"]
    continuation = newest_good_checkpoint(folder).checkpoint
    assert continuation is not None
    assert continuation.storage_id == "b"


@promise("needed-checkpoints-kept")
def test_a_policy_that_keeps_nothing_leaves_the_newest_good_one(home: Home, folder: TrialFolder) -> None:
    """A policy that keeps nothing still keeps the newest good checkpoint of each trial."""
    collect(home, Request(policy=dict.fromkeys(LATEST, 0)))

    assert stored_ids(home) == ["c"]


def test_where_no_checkpoint_of_a_trial_is_good_none_is_deleted(home: Home, folder: TrialFolder) -> None:
    """If no checkpoint of a trial is good, none of its checkpoints is deleted, but other trials' are."""
    for storage_id in ("a", "b", "c"):
        damage(home, storage_id)
    trial_with(home, "d", "e")

    collect_latest(home)

    assert stored_ids(home) == ["a", "b", "c", "e"]


def test_a_partly_deleted_checkpoint_is_not_the_good_one(home: Home, folder: TrialFolder) -> None:
    """A partly deleted checkpoint does not count as the newest good one."""
    remaining = DirectoryStorage(home.checkpoints).delete("c", ["metadata.json", "*.none"])
    folder.append_change(CheckpointPruned(time=time.time(), storage_id="c", resources=remaining))

    found = reasons(home)

    assert found["b"] == "latest 1 of trial 1"


def test_files_that_somebody_removed_take_nobodys_place(home: Home, folder: TrialFolder) -> None:
    """A checkpoint whose files are missing does not count as the latest."""
    DirectoryStorage(home.checkpoints).delete("c")

    deleted = collect_latest(home)

    assert deleted == ["a"]
    assert stored_ids(home) == ["b"]


def test_superseded_checkpoints_go(home: Home, folder: TrialFolder) -> None:
    """Checkpoints that a later attempt superseded are deleted once it has stored its own."""
    training = new_attempt(folder, resumed_steps=10)
    store(training, "d", 15)
    training.end()

    found = reasons(home)
    collect_latest(home)

    assert found["c"] == "a later attempt went back behind it"
    assert stored_ids(home) == ["d"]


def test_a_superseded_checkpoint_stays_where_there_is_no_other(home: Home, folder: TrialFolder) -> None:
    """A superseded checkpoint is kept if the trial has no other."""
    new_attempt(folder, resumed_steps=0).die()

    collect_latest(home)

    assert stored_ids(home) == ["c"]


@promise("needed-checkpoints-kept")
def test_an_unreachable_storage_condemns_nothing_in_it(
    home: Home, folder: TrialFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints in an unreachable storage are not marked as deleted, and others are collected."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    far = new_trial(home)
    training = new_attempt(far)
    for number, storage_id in enumerate("xyz"):
        training.append(
            CheckpointStored(
                time=0.0, storage_id=storage_id, storage="s3://far", steps_completed=number, metadata={}, resources={}
            )
        )
    training.end()

    done = collect(home, Request(policy=LATEST))

    assert stored_ids(home) == ["c"]
    assert {verdict.storage_id for verdict in done.deleted} == {"a", "b"}
    assert len(done.problems) == 1
    assert "s3://far" in done.problems[0]
    assert states(home)["x"] == "COMPLETED"


def test_a_directory_that_is_not_mounted_condemns_nothing(home: Home, folder: TrialFolder) -> None:
    """Checkpoints in a missing directory are not marked as deleted, as it may not be mounted."""
    home.checkpoints.rename(home.root / "elsewhere")

    done = collect(home, Request(policy=LATEST))
    (home.root / "elsewhere").rename(home.checkpoints)

    assert done.deleted == ()
    assert "mounted" in done.problems[0]
    assert set(states(home).values()) == {"COMPLETED"}


@promise("deletion-finished")
def test_an_interrupted_deletion_is_finished(home: Home, folder: TrialFolder) -> None:
    """Killed between the first line and the files: no list shows it, and the next collection removes it."""
    folder.append_change(CheckpointCondemned(time=time.time(), storage_id="c"))
    listed = states(home)
    continuation = newest_good_checkpoint(folder).checkpoint

    collect_latest(home)

    assert listed["c"] == "DELETED"
    assert continuation is not None
    assert continuation.storage_id == "b"
    assert stored_ids(home) == ["b"]
    assert collect_latest(home) == []


def begin(training: Training, storage_id: str) -> None:
    """Leaves a save as if it had been killed between its commit and its record."""
    storage = DirectoryStorage(training.folder.home_root / "checkpoints")
    training.append(CheckpointBegun(time=time.time(), storage_id=storage_id, storage=storage.url))
    with storage.stage(storage_id) as staging:
        (staging.path / "weights.bin").write_bytes(b"weights")
        store_alone(staging, {"steps_completed": 40})


@promise("deletion-asked-for")
def test_what_a_killed_save_left_whole_and_unlisted_is_removed(home: Home, folder: TrialFolder) -> None:
    """Unlisted files of a killed save are removed after the attempt's end; files of unknown origin are kept."""
    training = new_attempt(folder, resumed_steps=30)
    begin(training, "lost")
    shutil.copytree(home.checkpoints / "a", home.checkpoints / "foreign")
    while_running = collect_latest(home)
    training.die()

    deleted = collect_latest(home)

    assert while_running == []
    assert set(deleted) == {"a", "b", "lost"}
    assert stored_ids(home) == ["c", "foreign"]


def test_a_save_whose_record_may_be_what_was_damaged_is_not_removed(home: Home, folder: TrialFolder) -> None:
    """A bad line may have listed it, and may have been a validation or a pin: nothing of the trial goes."""
    training = new_attempt(folder, resumed_steps=30)
    begin(training, "kept")
    training.die()
    journal = folder.journal_path(2)
    journal.write_bytes(journal.read_bytes() + b'00000000 {"type":"checkpoint","storage_id":"kept"}\n')

    found = reasons(home)
    deleted = collect_latest(home)

    assert deleted == []
    assert "2.journal" in found["a"]
    assert "kept" in stored_ids(home)


def test_a_trial_that_is_being_resumed_is_left_alone(home: Home, folder: TrialFolder) -> None:
    """A trial whose next attempt is being claimed loses no checkpoints."""
    with claimed_next_attempt(folder, "resume"):
        done = collect(home, Request(policy=LATEST))

    assert done.deleted == ()
    assert {verdict.storage_id for verdict in done.spared} == {"a", "b"}
    assert stored_ids(home) == ["a", "b", "c"]


def test_a_trial_cannot_be_resumed_while_its_checkpoints_are_deleted(home: Home, folder: TrialFolder) -> None:
    """The collector holds the claim until the last one is gone; then it can."""
    with Collector(home, Request(policy=LATEST)) as collector:
        plan = collector.plan()
        deletions = collector._delete_of([1], plan, {1: plan.condemned})
        next(deletions)
        with pytest.raises(TrialRunningError), claimed_next_attempt(folder, "resume"):
            pass
        list(deletions)

    with claimed_next_attempt(folder, "resume") as attempt:
        assert attempt == 2
    assert stored_ids(home) == ["c"]


def test_what_was_pinned_since_the_plan_is_spared(home: Home, folder: TrialFolder) -> None:
    """A checkpoint that is pinned between the plan and its execution is kept."""
    with Collector(home, Request(policy=LATEST)) as collector:
        plan = collector.plan()
        folder.append_change(CheckpointPinned(time=time.time(), storage_id="a"))
        done = collector.carry_out(plan)

    assert [verdict.storage_id for verdict in done.deleted] == ["b"]
    assert [verdict.storage_id for verdict in done.spared] == ["a"]
    assert stored_ids(home) == ["a", "c"]


def test_what_the_person_was_not_shown_is_not_deleted(home: Home, folder: TrialFolder) -> None:
    """A checkpoint that is not in the plan is not deleted, even if the policy would now delete it."""
    with Collector(home, Request(policy=LATEST)) as collector:
        plan = collector.plan()
        training = new_attempt(folder, resumed_steps=30)
        store(training, "d", 40)
        training.end()
        collector.carry_out(plan)

    assert stored_ids(home) == ["c", "d"]


def test_one_collector_works_at_a_time(home: Home, folder: TrialFolder) -> None:
    """A second collector waits for the first and gives up after its time limit."""
    with FileLock(home.root / "collection.lock"), pytest.raises(HomeError, match="try again later"):
        collect(home, Request(policy=LATEST), wait_s=0.1)

    assert stored_ids(home) == ["a", "b", "c"]


def test_the_journals_say_why_a_checkpoint_went(home: Home, folder: TrialFolder) -> None:
    """The journal records the reason of each deletion."""
    collect_latest(home)

    condemned = [record for record in read_records(folder.changes_path) if isinstance(record, CheckpointCondemned)]
    assert [(record.storage_id, record.reason) for record in condemned] == [
        ("a", "the policy does not keep it"),
        ("b", "the policy does not keep it"),
    ]


def test_an_experiments_policy_survives_a_reader_that_does_not_know_it(home: Home, folder: TrialFolder) -> None:
    """The policy is one additional field of the experiment's record."""
    with home.experiment(1).edit() as record:
        record.retention = RetentionPolicy(save_trial_latest=3)

    content = msgspec.json.decode(home.experiment(1).record_path.read_bytes())

    assert content["retention"] == {
        "save_experiment_best": 0,
        "save_trial_best": 1,
        "save_trial_latest": 3,
        "keep_every": None,
    }
    assert content["name"] == "digits"


class Overtaken(Collector):
    """A collector during whose last check the checkpoint "a" is pinned."""

    def _delete(self, verdict: Verdict) -> Verdict:
        if verdict.storage_id == "a":
            checkpoints.pin(self._home, "a", "mine")
        return super()._delete(verdict)


def test_a_pin_that_came_first_is_heeded(home: Home, folder: TrialFolder) -> None:
    """A pin that is recorded before the deletion keeps the checkpoint, even after the last check."""
    with Overtaken(home, Request(policy=LATEST)) as collector:
        done = collector.carry_out(collector.plan())

    assert [verdict.storage_id for verdict in done.deleted] == ["b"]
    assert [verdict.storage_id for verdict in done.spared] == ["a"]
    assert stored_ids(home) == ["a", "c"]
    assert states(home)["a"] == "COMPLETED"


def test_a_pin_that_comes_second_is_refused(home: Home, folder: TrialFolder) -> None:
    """A pin after the deletion is refused, and so is a deletion by hand after a pin."""
    folder.append_change(CheckpointCondemned(time=0.0, storage_id="a"))

    with pytest.raises(CheckpointNotFoundError, match="it was deleted"):
        checkpoints.pin(home, "a")

    checkpoints.pin(home, "b")
    with pytest.raises(CheckpointProtectedError):
        recording(folder)(CheckpointCondemned(time=0.0, storage_id="b"))
    assert states(home) == {"a": "DELETED", "b": "COMPLETED", "c": "COMPLETED"}


def test_a_damaged_experiment_keeps_only_its_own_checkpoints(home: Home, folder: TrialFolder) -> None:
    """A damaged experiment record is named and keeps its checkpoints; other experiments are collected."""
    trial_with(home, "d", "e")
    other = new_trial(home, experiment="other")
    training = new_attempt(other)
    for steps, storage_id in enumerate("xyz"):
        store(training, storage_id, steps)
    training.end()
    path = home.experiment(1).record_path
    path.write_bytes(path.read_bytes()[:-9] + b"9" * 9)

    done = collect(home, Request(policy=LATEST))

    assert {verdict.storage_id for verdict in done.deleted} == {"x", "y"}
    assert [problem for problem in done.problems if str(path) in problem] == list(done.problems) != []
    with pytest.raises(RecordDamagedError):
        collect(home, Request(experiment_id=1, policy=LATEST))


def test_a_damaged_trial_keeps_its_checkpoints_and_that_with_which_it_began(home: Home, folder: TrialFolder) -> None:
    """A damaged trial keeps its checkpoints and the one it began with; if that is unknown, collection is refused."""
    damaged = new_trial(home, continued_from="a")
    training = new_attempt(damaged, latest_checkpoint="a")
    store(training, "x", 1)
    store(training, "y", 2)
    training.end()
    path = damaged.path / "trial.json"
    path.write_bytes(path.read_bytes()[:-9] + b"9" * 9)

    done = collect(home, Request(policy=LATEST))

    assert {verdict.storage_id for verdict in done.deleted} == {"b"}
    assert stored_ids(home) == ["a", "c", "x", "y"]
    assert any(str(path) in problem for problem in done.problems)
    damaged.journal_path(1).write_bytes(b"")
    with pytest.raises(RecordDamagedError):
        collect(home, Request(policy=LATEST))
