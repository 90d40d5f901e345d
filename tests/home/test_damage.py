"""Damage stays where it is: whatever byte of a home is wrong, it is named, and all the rest is listed as it was."""

from __future__ import annotations

import contextlib
import functools
import json
import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import google_crc32c
import pytest
from home.journals import START, everything, new_trial, rebuilt, record, report, stored
from interfaces.cli.commands import Finished, WarmCli
from promises import promise
from stage import flip, replace

from core_sdk._ground.environment import get_cluster_info, use_run_info
from core_sdk._ground.records import (
    ClusterInfo,
    CommandRecord,
    ExitRecord,
    JobRecord,
    RetentionPolicy,
    StopAcknowledged,
    TrialInfo,
)
from core_sdk._home import Home
from core_sdk._home.history import read_history
from core_sdk._home.index import Index
from core_sdk._home.rows import ExperimentRow, TrialRow
from core_sdk.client import Tracker
from core_sdk.errors import AttemptError, HomeNotWritableError, RecordDamagedError

_TRIALS = {1: "12", 2: "3"}
"""The trials of each experiment."""

_JOB = "slurm/cluster/7/0123456789abcdef"


@pytest.fixture
def run_cli(tmp_path: Path, warm_cli: WarmCli) -> Callable[..., Finished]:
    return functools.partial(warm_cli.run, tmp_path)


@pytest.fixture
def recorded(home: Home) -> Home:
    """Three trials of two experiments, with all the small files that a home can hold."""
    for number, experiment in enumerate(["digits", "digits", "näht"], start=1):
        folder = new_trial(home, experiment, lr=0.1 * number, layers=[64, 10], of="näht", nothing=None)
        record(folder, *(report(steps, loss=1 / (steps + number)) for steps in range(1, 20)), stored(f"c{number}", 9))
        record(folder, report(10, attempt=2, loss=0.5), StopAcknowledged(time=START, source="SIGTERM"), attempt=2)
        folder.write_command(CommandRecord(argv=["python", "train.py"], cwd="/tmp", environment={"PATH": "/bin"}))
        trial = TrialInfo(trial_id=number, experiment_id=1, trial_seed=7, hparams={"lr": 0.1})
        folder.write_run_info(2, ClusterInfo(trial_or_none=trial, latest_checkpoint=f"c{number}"))
        folder.write_exit(2, ExitRecord(time=START, code=75))
        folder.request_stop(2, "core-sdk trial pause")
    with home.experiment(1).edit() as described:
        described.labels, described.retention = ["good", "näht"], RetentionPolicy()
    home.write_job(JobRecord(job=_JOB, trial_id=1, script="train.py", num_restarts=0))
    return home


def record_files(home: Home) -> list[Path]:
    """Returns the record files of all experiments, trials and jobs."""
    patterns = ("jobs/*.json", "experiments/*/experiment.json", "runs/*/*.json", "runs/*/*.exit", "runs/*/*.stop")
    files = sorted(path for pattern in patterns for path in home.root.glob(pattern))
    assert len(files) == 1 + 2 + 3 * 5
    return files


@pytest.mark.parametrize("num_flips", [80, pytest.param(2000, marks=pytest.mark.timeout(3600))])
def test_a_flipped_bit_in_a_record_file_is_never_an_answer(recorded: Home, num_flips: int) -> None:
    """A flipped bit in a record is refused by path or has no effect; other trials are listed unchanged."""
    chance = random.Random(3)
    files = record_files(recorded)
    before = {path: read(recorded, path) for path in files}
    num_refused = 0
    with Index(recorded) as index:
        index.refresh()
        trials, experiments = index.trials(), index.experiments()
        for _ in range(num_flips):
            path = chance.choice(files)
            content = path.read_bytes()
            replace(path, flip(content, chance.randrange(len(content) * 8)))

            is_refused = refuses_or_equals(recorded, path, before[path])
            left_out = list(index.refresh().left_out)

            is_trial, is_experiment = path.name == "trial.json", path.name == "experiment.json"
            assert left_out == [path.parent if is_trial else path] * (is_refused and (is_trial or is_experiment))
            assert others(index.trials(), path) == others(trials, path)
            assert others(index.experiments(), path) == others(experiments, path)
            num_refused += is_refused
            replace(path, content)
        index.refresh()
        assert (index.trials(), index.experiments()) == (trials, experiments)
    # About one bit in fourteen belongs to the checksum's own name.
    assert num_refused > 0.8 * num_flips


def refuses_or_equals(home: Home, path: Path, before: object) -> bool:
    """Returns whether the record is refused; otherwise it must equal the undamaged one."""
    try:
        assert read(home, path) == before
    except RecordDamagedError as error:
        assert str(path) in str(error)
        return True
    return False


def read(home: Home, path: Path) -> object:
    """Reads the record as its users do."""
    if path.parent == home.jobs:
        return home.read_job(_JOB)
    if path.name == "experiment.json":
        return home.experiment(int(path.parent.name)).read()
    folder = home.trial(int(path.parent.name))
    readers: dict[str, Callable[[], object]] = {
        "trial.json": folder.read_record,
        "command.json": folder.read_command,
        "2.run.json": lambda: folder.read_run_info(2),
        "2.exit": lambda: folder.read_exit(2),
        "2.stop": lambda: folder.read_stop_request(2),
    }
    return readers[path.name]()


def others(rows: Sequence[TrialRow] | Sequence[ExperimentRow], damaged: Path) -> list[TrialRow | ExperimentRow]:
    """Returns the rows that do not depend on the damaged file."""
    if damaged.parent.parent.name == "experiments":
        return [row for row in rows if row.experiment_id != int(damaged.parent.name)]
    trial_id = damaged.parent.name
    return [
        row
        for row in rows
        if (str(row.trial_id) != trial_id if isinstance(row, TrialRow) else trial_id not in _TRIALS[row.experiment_id])
    ]


@promise("index-rebuilt")
@pytest.mark.parametrize("num_flips", [40, pytest.param(2000, marks=pytest.mark.timeout(3600))])
def test_a_flipped_bit_in_the_points_of_the_index_is_never_an_answer(recorded: Home, num_flips: int) -> None:
    """After a flipped bit in the points, new and open readers give the same answers as before."""
    chance = random.Random(4)
    expected = rebuilt(recorded)
    with Index(recorded) as reader:
        for _ in range(num_flips):
            flip_in_points(recorded, chance)

            with Index(recorded) as index:
                assert everything(index) == expected
            assert everything(reader) == expected


def flip_in_points(home: Home, chance: random.Random) -> None:
    column = chance.choice(["orders", "last", "steps", "numbers", "times"])
    with contextlib.closing(sqlite3.connect(home.database)) as connection, connection:
        rowid, content = chance.choice(connection.execute(f"SELECT rowid, {column} FROM block").fetchall())
        flipped = flip(content, chance.randrange(len(content) * 8))
        connection.execute(f"UPDATE block SET {column} = ? WHERE rowid = ?", (flipped, rowid))


def test_a_flipped_bit_anywhere_in_the_index_ends_no_reader(recorded: Home) -> None:
    """A flipped bit anywhere in the index database makes no reader fail."""
    chance = random.Random(5)
    rebuilt(recorded)
    for _ in range(40):
        content = recorded.database.read_bytes()
        recorded.database.write_bytes(flip(content, chance.randrange(len(content) * 8)))

        with Index(recorded) as index:
            index.refresh()
            for row in index.trials():
                list(index.reports(row.trial_id))


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b"7", b"2", b"0", b"\xff", "²".encode(), b"-1", b"1 ", b"99999999999999999999"],
    ids=repr,
)
def test_a_damaged_name_leads_to_its_experiment(recorded: Home, content: bytes) -> None:
    """A damaged name file is repaired from the experiments' records; no experiment is made twice."""
    (path,) = (path for path in (recorded.experiments / "names").iterdir() if path.read_bytes() == b"1")
    path.write_bytes(content)

    assert recorded.find_or_create_experiment("digits").experiment_id == 1
    assert path.read_bytes() == b"1"
    assert recorded.find_or_create_experiment("näht").experiment_id == 2
    assert recorded.experiment_ids() == [1, 2]


def test_a_name_whose_experiment_is_gone_gets_a_new_one(recorded: Home) -> None:
    """A name whose experiment folder was removed gets a new experiment."""
    shutil.rmtree(recorded.experiments / "1")

    assert recorded.find_or_create_experiment("digits").experiment_id == 3


def test_an_experiment_is_not_made_twice_because_its_record_is_damaged(recorded: Home) -> None:
    """If a record is damaged, a name is not given to a new experiment, since the record may have it."""
    path = recorded.experiment(1).record_path
    path.write_bytes(flip(path.read_bytes(), 100))

    with pytest.raises(RecordDamagedError, match=re.escape(str(path))):
        recorded.find_or_create_experiment("digits")


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"format":"1"}', b'{"sdk_version":"\xff"}'], ids=repr)
def test_a_damaged_home_record_is_named_and_stops_nobody(
    recorded: Home, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged home.json is reported, but records are read and trainings begin."""
    (recorded.root / "home.json").write_bytes(content)

    home = Home.create(recorded.root)

    assert Home.open(home.root).trial_ids() == [1, 2, 3]
    assert f"{home.root / 'home.json'} cannot be read" in caplog.text


def test_a_flipped_bit_of_the_home_record_refuses_no_home(recorded: Home) -> None:
    """No flipped bit in home.json makes the home look like one of another format."""
    path = recorded.root / "home.json"
    content = path.read_bytes()
    for bit in range(len(content) * 8):
        path.write_bytes(flip(content, bit))

        Home.open(recorded.root)


@pytest.mark.parametrize("name", ["²", "٣", "0", "007", "99999999999999999999", "1_0", "+4", "7.bak", "x", " 5"])
def test_a_folder_that_no_trial_has_made_is_no_trial(recorded: Home, name: str) -> None:
    """Folders with other names than ids are ignored as trials and experiments."""
    for directory in (recorded.runs, recorded.experiments):
        (directory / name).mkdir()
        (directory / name / "trial.json").write_bytes(b"x")
        (directory / name / "experiment.json").write_bytes(b"x")
    expected = [1, 2, 3]

    with Index(recorded) as index:
        assert index.refresh().left_out == {}
        assert [row.trial_id for row in index.trials()] == expected
    assert recorded.create_trial().trial_id == 4
    assert recorded.find_or_create_experiment("new").experiment_id == 3


@pytest.mark.parametrize("name", ["trial.json", "2.exit", "1.journal", "changes.journal", "command.json"])
def test_what_is_no_file_disturbs_no_other_trial(recorded: Home, name: str) -> None:
    """A directory in the place of a trial's file does not hide other trials."""
    path = recorded.trial(2).path / name
    path.unlink(missing_ok=True)
    path.mkdir()

    with Index(recorded) as index:
        index.refresh()
        assert {1, 3} <= {row.trial_id for row in index.trials()}


_ABSURD_RECORDS = {
    "a metric that is text": b'{"type":"report","time":1.0,"group":"g","steps_completed":1,"metrics":{"a":"high"}}',
    "a metric beyond 64 bits": b'{"type":"report","time":1.0,"group":"g","steps_completed":1,"metrics":{"a":1%0400d}}'
    % 0,
    "a batch metric that is text": b'{"type":"report","time":1.0,"group":"g","steps_completed":1,"metrics":{},'
    b'"batch_metrics":[{"a":"high"}]}',
    "a step beyond 64 bits": b'{"type":"report","time":1.0,"group":"g","steps_completed":1%030d,"metrics":{}}' % 0,
    "a time of no clock": b'{"type":"report","time":1e300,"group":"g","steps_completed":1,"metrics":{"a":1}}',
    "figures that are text": b'{"type":"profile","time":1.0,"group":"cpu","metrics":{"a":1,"b":"high"}}',
    "metadata nested 490 deep": b'{"type":"metadata","time":1.0,"metadata":{"a":%b%b}}' % (b"[" * 490, b"]" * 490),
    "metadata nested 5000 deep": b'{"type":"metadata","time":1.0,"metadata":{"a":%b%b}}' % (b"[" * 5000, b"]" * 5000),
    "a float that is none": b'{"type":"metadata","time":1.0,"metadata":{"a":{"$float":[1]}}}',
    "a checkpoint's step beyond 64 bits": b'{"type":"checkpoint","time":1.0,"storage_id":"a","storage":"s3://b",'
    b'"steps_completed":1%030d,"metadata":{},"resources":{}}' % 0,
    "a file beyond 64 bits": b'{"type":"checkpoint","time":1.0,"storage_id":"a","storage":"s3://b",'
    b'"steps_completed":1,"metadata":{},"resources":{"a":1%0400d}}' % 0,
    "a checkpoint's metadata that is none": b'{"type":"checkpoint","time":1.0,"storage_id":"a","storage":"s3://b",'
    b'"steps_completed":1,"metadata":{"a":{"$float":"x"}},"resources":{}}',
    "a checkpoint's change that is none": b'{"type":"checkpoint_metadata","time":1.0,"storage_id":"c1",'
    b'"metadata":{"a":{"$float":"x"}}}',
    "a count beyond 64 bits": b'{"type":"dropped","time":1.0,"count":1%030d,"reason":"x"}' % 0,
    "a resumed step beyond 64 bits": b'{"type":"attempt","time":1.0,"format":1,"trial_id":1,"attempt":1,"host":"h",'
    b'"pid":1,"sdk_version":"0","resumed_steps":1%030d}' % 0,
    "text that is not UTF-8": b'{"type":"status","time":1.0,"status":"\xff"}',
}


@pytest.mark.parametrize("body", _ABSURD_RECORDS.values(), ids=_ABSURD_RECORDS.keys())
def test_a_record_that_nobody_can_have_made_is_a_bad_line(recorded: Home, body: bytes) -> None:
    """An absurd record with a right checksum counts as a bad line and changes nothing else."""
    expected = rebuilt(recorded)
    with recorded.trial(1).journal_path(1).open("ab") as journal:
        journal.write(b"%08x %b\n" % (google_crc32c.value(body), body))

    with Index(recorded) as index:
        assert index.refresh().num_bad_lines == 1
        assert index.trial(1).num_bad_lines == 1
        assert everything(index) == expected.replace("num_bad_lines=0", "num_bad_lines=1", 1)
    assert read_history(recorded.trial(1), with_validation=True).checkpoints


_ABSURD_TRIALS = {
    "text that is not UTF-8": b'{"trial_id":1,"experiment_id":1,"created":1,"seed":1,"hparams":{"a":"\xff"}}',
    "hyperparameters nested 490 deep": b'{"trial_id":1,"experiment_id":1,"created":1,"seed":1,"hparams":{"a":%b%b}}'
    % (b"[" * 490, b"]" * 490),
    "hyperparameters nested 5000 deep": b'{"trial_id":1,"experiment_id":1,"created":1,"seed":1,"hparams":{"a":%b%b}}'
    % (b"[" * 5000, b"]" * 5000),
    "an experiment beyond 64 bits": b'{"trial_id":1,"experiment_id":1%030d,"created":1,"seed":1}' % 0,
    "a time of no clock": b'{"trial_id":1,"experiment_id":1,"created":1e300,"seed":1}',
    "a float that is none": b'{"trial_id":1,"experiment_id":1,"created":1,"seed":1,"hparams":{"a":{"$float":"x"}}}',
    "data that is none": b'{"trial_id":1,"experiment_id":1,"created":1,"seed":1,"data":{"a":{"$float":1}}}',
}


@pytest.mark.parametrize("content", _ABSURD_TRIALS.values(), ids=_ABSURD_TRIALS.keys())
def test_a_trial_record_that_nobody_can_have_made_is_left_out_and_named(
    recorded: Home, content: bytes, run_cli: Callable[..., Finished]
) -> None:
    """An absurd trial record is left out and named by lists, client and commands; others are listed."""
    path = recorded.trial(1).path / "trial.json"
    path.write_bytes(content)

    listed = run_cli("trial", "list", "--json")
    with pytest.raises(RecordDamagedError) as damage:
        Tracker(recorded.root).get_trial(1)

    assert (listed.status, [row["trial_id"] for row in json.loads(listed.output)]) == (0, [2, 3])
    assert str(path) in listed.errors
    assert damage.value.path == path


def test_a_huge_integer_among_hyperparameters_is_listed(recorded: Home) -> None:
    """A trial with a huge integer among its hyperparameters is listed."""
    path = recorded.trial(1).path / "trial.json"
    path.write_bytes(b'{"trial_id":1,"experiment_id":1,"created":1,"seed":1,"hparams":{"a":%d}}' % 10**300)

    with Index(recorded) as index:
        index.refresh()
        assert index.trial(1).hparams == {"a": 10**300}
        assert len(index.trials()) == 3


def test_a_damaged_exit_status_is_told_as_the_reason(recorded: Home) -> None:
    """If the exit record is damaged, the trial is an error with that reason."""
    path = recorded.trial(1).path / "2.exit"
    path.write_bytes(flip(path.read_bytes(), 70))

    with Index(recorded) as index:
        index.refresh()
        assert (index.trial(1).state, index.trial(1).reason) == ("ERROR", "its exit status cannot be read")
        assert index.trial(2).state == "PAUSED"


def test_a_damaged_command_does_not_keep_a_trial_from_being_described(
    recorded: Home, run_cli: Callable[..., Finished]
) -> None:
    """A damaged command record is reported, but the trial can be described."""
    path = recorded.trial(1).path / "command.json"
    path.write_bytes(flip(path.read_bytes(), 70))

    described = run_cli("trial", "describe", "1")

    assert (described.status, "digits" in described.output) == (0, True)
    assert str(path) in described.errors


def test_a_run_info_is_verified(recorded: Home) -> None:
    """A script refuses a run info with a wrong checksum."""
    path = recorded.trial(1).run_info_path(2)
    use_run_info(path)
    info = get_cluster_info()
    path.write_bytes(flip(path.read_bytes(), 1000))

    assert info is not None
    assert info.latest_checkpoint == "c1"
    with pytest.raises(AttemptError, match="wrong checksum"):
        get_cluster_info()


def test_a_record_without_a_checksum_is_taken_as_it_is(recorded: Home) -> None:
    """A record without a checksum, as a person may write it, is accepted."""
    path = recorded.trial(1).path / "trial.json"
    path.write_bytes(b'{"trial_id": 1, "experiment_id": 1, "created": 1, "seed": 5, "hparams": {"crc32c": 1}}\n')

    assert recorded.trial(1).read_record().hparams == {"crc32c": 1}


def test_a_home_that_is_a_file_is_refused_by_name(tmp_path: Path, run_cli: Callable[..., Finished]) -> None:
    """A home path that is a file is refused by readers and writers."""
    (tmp_path / "file").write_text("x")

    for make in (Home.open, Home.create):
        with pytest.raises(HomeNotWritableError, match="is not a directory"):
            make(tmp_path / "file")
    listed = run_cli("trial", "list", CORE_SDK_HOME=str(tmp_path / "file"))
    assert (listed.status, "Errno" in listed.errors) == (1, False)
