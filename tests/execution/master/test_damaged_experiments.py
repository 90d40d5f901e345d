"""Damage to one experiment is named, lets that experiment stand still, and is no matter of the others."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from execution.master.damage import HomeWithExperiments, made_home, opened_master
from interfaces.cli.commands import Finished, WarmCli
from masters import running_master
from processes import wait_for
from promises import promise
from stage import flip, replace

from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.protocol import GetStatus, Want
from core_sdk._ground.records import AttemptBegun, AttemptOver, ExperimentBegun, TrialNumbered, encode_values
from core_sdk._home import Home
from core_sdk._home.deletion.collection import Request, collect
from core_sdk.errors import MasterError

FILES = ["experiment.json", "config.json", "submission.json", "events.journal"]


@pytest.fixture
def made(home: Home, tmp_path: Path) -> Iterator[HomeWithExperiments]:
    with made_home(home, tmp_path) as made:
        yield made


@pytest.fixture
def run_cli(tmp_path: Path, warm_cli: WarmCli) -> Callable[..., Finished]:
    return functools.partial(warm_cli.run, tmp_path)


@promise("damaged-experiment-waits")
@pytest.mark.parametrize("name", FILES)
def test_a_master_that_starts_names_the_damaged_file_and_goes_on_with_the_others(
    made: HomeWithExperiments, name: str
) -> None:
    """The damaged experiment decides nothing; when its file is restored, it goes on."""
    path = made.folder(made.running).path / name
    whole = path.read_bytes()
    replace(path, flip(whole, 8 * (len(whole) // 2)))
    before = made.events()

    with opened_master(made.home) as master:
        states = made.states()

        assert states == {made.running: "DAMAGED", made.paused: "PAUSED"}
        assert str(path) in made.problem(made.running)
        assert made.events() == before
        replace(path, whole)
        wait_for(lambda: made.states() == {made.running: "ACTIVE", made.paused: "PAUSED"})
        assert master.is_alive()
    assert made.events()[made.paused] == before[made.paused]


@promise("damaged-experiment-waits")
@pytest.mark.parametrize("name", FILES)
def test_a_master_that_runs_survives_the_damage(made: HomeWithExperiments, name: str) -> None:
    """A running master survives a damaged file and refuses, with its path, only what needs it."""
    path = made.folder(made.paused).path / name
    with opened_master(made.home) as master:
        whole = path.read_bytes()
        os.truncate(path, len(whole) // 2)

        try:
            call(made.home.root, Want(experiment_id=made.paused, state="ACTIVE"))
            call(made.home.root, Want(experiment_id=made.paused, state="PAUSED"))
        except MasterError as error:
            assert str(path) in str(error)
        if name in ("experiment.json", "events.journal"):
            wait_for(lambda: made.states()[made.paused] == "DAMAGED")
            assert str(path) in made.problem(made.paused)
        assert made.states()[made.running] == "ACTIVE"
        assert master.is_alive()


@pytest.mark.parametrize("lost", [ExperimentBegun, TrialNumbered, AttemptBegun])
@pytest.mark.parametrize("how", ["flipped", "cut"])
def test_an_experiment_that_has_lost_an_event_decides_nothing(made: HomeWithExperiments, lost: type, how: str) -> None:
    """An experiment that has lost an event is damaged, and nothing more is decided or written for it."""
    folder = made.folder(made.running)
    lines = folder.events_path.read_bytes().splitlines(keepends=True)
    number = next(i for i, event in enumerate(made.events()[made.running]) if isinstance(event, lost))
    if how == "flipped":
        lines[number] = flip(lines[number], 8 * 20)
    else:
        del lines[number:]
    replace(folder.events_path, b"".join(lines))

    with opened_master(made.home):
        assert made.states() == {made.running: "DAMAGED", made.paused: "PAUSED"}
    assert folder.events_path.read_bytes() == b"".join(lines)
    assert len(made.home.trial_ids()) == made.num_trials


def test_the_slots_of_a_damaged_experiment_are_not_given_away(made: HomeWithExperiments) -> None:
    """The running trial of a damaged experiment keeps its slot."""
    path = made.folder(made.running).events_path
    replace(path, flip(path.read_bytes(), 200))

    with opened_master(made.home, num_slots=1):
        call(made.home.root, Want(experiment_id=made.paused, state="ACTIVE"))
        found = {one.experiment_id: one for one in call(made.home.root, GetStatus()).experiments}

        assert [trial.slots for trial in found[made.running].running] == [(0,)]
        assert found[made.paused].running == ()
        made.end_running_trial()
        wait_for(lambda: any(isinstance(event, AttemptOver) for event in made.events()[made.paused]))


def test_commands_answer_in_words(made: HomeWithExperiments, run_cli: Callable[..., Finished]) -> None:
    """Lists show the damaged experiment, and commands that need its events name the file."""
    path = made.folder(made.running).events_path
    replace(path, flip(path.read_bytes(), 200))

    with opened_master(made.home):
        listed = run_cli("experiment", "list")
        described = run_cli("experiment", "describe", str(made.running))
        queued = run_cli("queue", "list", "--json")
        refused = [
            run_cli("experiment", *words, str(made.running)) for words in (["plot"], ["kill"], ["pause"], ["follow"])
        ]
        ended = run_cli("trial", "kill", str(made.running_trial))

    assert listed.status == 0 and "ACTIVE, damaged" in listed.output
    assert str(path.name) in described.output
    assert queued.status == 0 and str(path) in queued.output
    for finished in refused:
        assert finished.status == 1 and str(path) in finished.errors.replace("\n", "")
        assert "Traceback" not in finished.errors
    assert ended.status == 0


def test_a_damaged_experiment_can_be_deleted(made: HomeWithExperiments, run_cli: Callable[..., Finished]) -> None:
    """A damaged experiment can be deleted after its trials have ended."""
    path = made.folder(made.running).events_path
    replace(path, flip(path.read_bytes(), 200))

    with opened_master(made.home):
        run_cli("trial", "kill", str(made.running_trial))
        deleted = run_cli("experiment", "delete", "--yes", str(made.running))

        assert deleted.status == 0, deleted.errors
        wait_for(lambda: made.states() == {made.paused: "PAUSED"})


def test_a_configuration_is_never_read_otherwise_than_written(made: HomeWithExperiments) -> None:
    """A flipped bit in a number of the configuration is noticed by its checksum."""
    folder = made.folder(made.paused)
    content = folder.completed_config_path.read_bytes()
    place = content.index(b'"max_trials": 4') + len(b'"max_trials": ')

    replace(folder.completed_config_path, flip(content, 8 * place + 1))

    with opened_master(made.home):
        assert "config.json cannot be read: it has a wrong checksum" in made.problem(made.paused)


def test_an_older_configuration_has_no_checksum(made: HomeWithExperiments) -> None:
    """A configuration without a checksum is read, and an invalid one is damaged."""
    folder = made.folder(made.paused)
    config = folder.read_config()
    folder.completed_config_path.write_bytes(encode_values(config).rpartition(b',"crc32c"')[0] + b"}")
    with opened_master(made.home):
        assert made.states()[made.paused] == "PAUSED"
    content = folder.completed_config_path.read_bytes()

    folder.completed_config_path.write_bytes(content.replace(b'"searcher"', b'"searchep"'))

    with opened_master(made.home):
        assert "config.json" in made.problem(made.paused)


def test_a_fork_of_an_altered_configuration_is_refused(
    made: HomeWithExperiments, run_cli: Callable[..., Finished]
) -> None:
    """Forking an experiment whose configuration text was altered is refused."""
    path = made.folder(made.paused).config_path
    path.write_text(path.read_text().replace("max_trials: 4", "max_trials: 6"))

    forked = run_cli("experiment", "fork", str(made.paused))

    assert forked.status == 1 and "it is not what was submitted" in forked.errors.replace("\n", " ")


def test_a_collection_leaves_the_damaged_experiment_alone(made: HomeWithExperiments) -> None:
    """A collection skips the damaged experiment and works for the others."""
    path = made.folder(made.running).record_path
    replace(path, flip(path.read_bytes(), 200))

    with running_master(made.home):
        deletions = collect(made.home, Request(policy={"save_trial_latest": 0, "save_trial_best": 0}))

        assert {verdict.experiment_id for verdict in (*deletions.deleted, *deletions.spared)} <= {made.paused}
        assert any(str(path) in problem for problem in deletions.problems)
