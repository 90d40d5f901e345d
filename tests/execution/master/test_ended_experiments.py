"""Each command on an experiment, in each of its states: it comes to an end, or is refused in words."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from execution.master.searches import submit_text
from masters import running_master
from processes import wait_for

from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.protocol import Post, Want
from core_sdk._execution.experiments.submission import continue_in_place, fork
from core_sdk._ground.records import Wish
from core_sdk._home import Home
from core_sdk.errors import CoreSDKError

SEARCHERS = {
    "single": "{name: single, metric: loss}",
    "random": "{name: random, metric: loss, max_trials: 2}",
    "async_halving": "{name: async_halving, metric: loss, max_trials: 2, num_rungs: 1, time_metric: t, max_time: 4}",
    "custom": "{name: custom, metric: loss}",
}
COMMANDS = {"COMPLETED": "true", "CANCELED": "true", "PAUSED": "true", "ERROR": "false", "ACTIVE": "sleep 1000"}
ENDS = ("COMPLETED", "CANCELED", "ERROR")
AT_REST = (*ENDS, "PAUSED")


def want(state: Wish) -> Callable[[Home, int], int]:
    def do(home: Home, experiment_id: int) -> int:
        call(home.root, Want(experiment_id=experiment_id, state=state, by="a test"))
        return experiment_id

    return do


VERBS: dict[str, Callable[[Home, int], int]] = {
    "continue": lambda home, experiment_id: continue_in_place(home, experiment_id).experiment_id,
    "fork": lambda home, experiment_id: fork(home, experiment_id).experiment_id,
    "activate": want("ACTIVE"),
    "pause": want("PAUSED"),
    "kill": want("KILLED"),
}


def begin(home: Home, tmp_path: Path, searcher: str, state: str) -> int:
    """Returns an experiment that is in this state."""
    text = f'entrypoint: "{COMMANDS[state]}"\nsearcher: {SEARCHERS[searcher]}\nmax_restarts: 0\n'
    text += "hyperparameters: {x: {type: int, minval: 1, maxval: 2, count: 2}}\nresources: {slots_per_trial: 0}\n"
    experiment_id = submit_text(home, tmp_path, text, "", is_paused=state in ("PAUSED", "CANCELED"))
    if state == "CANCELED":
        want("CANCELED")(home, experiment_id)
    elif searcher == "custom" and state in ENDS:
        shutdown = {"operation": "shutdown", "failure": state == "ERROR"}
        call(home.root, Post(experiment_id=experiment_id, num_events=1, operations=[shutdown]))
    if state == "ACTIVE" and searcher != "custom":
        wait_for(lambda: is_running(home, experiment_id))
    assert state == "ACTIVE" or await_state(home, experiment_id, AT_REST) == state
    return experiment_id


def is_running(home: Home, experiment_id: int) -> bool:
    search = home.experiment(experiment_id).read().search
    return search is not None and search.num_running == search.num_trials


def await_state(home: Home, experiment_id: int, states: tuple[str, ...]) -> str:
    deadline = time.monotonic() + 30
    while (search := home.experiment(experiment_id).read().search) is None or search.state not in states:
        assert time.monotonic() < deadline, f"experiment {experiment_id} does not come to an end: {search}"
        time.sleep(0.01)
    return search.state


def expected_refusals(searcher: str, is_damaged: bool) -> set[tuple[str, str]]:
    """Returns the commands, with the states of experiments, that are refused."""
    refused = {(verb, state) for verb in ("pause", "kill") for state in ENDS}
    refused |= {("activate", "CANCELED"), ("activate", "ERROR"), ("continue", "ACTIVE"), ("continue", "PAUSED")}
    if searcher != "single":
        refused.add(("continue", "COMPLETED"))
    if searcher in ("async_halving", "custom"):  # they have decided
        refused.add(("continue", "ERROR"))
    if searcher == "custom":
        refused.add(("continue", "CANCELED"))
    if is_damaged:
        needing = {"continue", "fork", "activate"}
        refused |= {(verb, state) for verb in needing for state in COMMANDS} - {("activate", "COMPLETED")}
    return refused


def damage_code(home: Home, experiment_id: int) -> Path:
    sha256 = home.experiment(experiment_id).read_submission().code
    assert sha256 is not None
    archive = home.code_archive(sha256)
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 1
    archive.write_bytes(content)
    return archive


@pytest.mark.parametrize(
    ("searcher", "is_damaged"),
    [
        *((each, False) for each in SEARCHERS),
        ("random", True),
    ],
)
def test_every_command_comes_to_an_end_or_is_refused(
    home: Home, tmp_path: Path, searcher: str, is_damaged: bool
) -> None:
    """In every state each command either ends properly or is refused without a change."""
    refused: set[tuple[str, str]] = set()
    ends = {}
    with running_master(Home.create(home.root)):
        for state, (verb, do) in itertools.product(COMMANDS, VERBS.items()):
            experiment_id = begin(home, tmp_path, searcher, state)  # which replaces an archive that is damaged
            archive = damage_code(home, experiment_id) if is_damaged else None
            try:
                changed = do(home, experiment_id)
            except CoreSDKError as error:
                assert str(archive) in str(error) or f"experiment {experiment_id}" in str(error), (state, verb)
                refused.add((verb, state))
                changed = experiment_id
            for each in {experiment_id, changed}:
                now = home.experiment(each).read().search
                # A custom search waits for its method.
                if now is not None and not now.has_ended and (searcher == "custom" or state == "ACTIVE"):
                    assert not now.is_damaged
                    call(home.root, Want(experiment_id=each, state="KILLED"))
            ends[verb, state] = await_state(home, changed, AT_REST)

    assert refused == expected_refusals(searcher, is_damaged)
    assert all(ends[verb, state] == state for verb, state in refused if state in ENDS)
