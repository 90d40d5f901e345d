"""Every verb through its three doors, command, client and page: the same effect, and the same words of a refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from home.journals import new_trial, record, report, stored
from interfaces.cli.commands import WarmCli
from interfaces.server.visitor import Visitor
from parts import needs

from core_sdk._execution.steering import checkpoints, models
from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import Ended
from core_sdk._home import Home, open_view
from core_sdk._home.registry import Registry
from core_sdk.client import Checkpoint, Experiment, Model, Tracker, Trial
from core_sdk.errors import CoreSDKError

Body = Mapping[str, Any]
NOTHING: Body = {}


@dataclass(frozen=True)
class Verb:
    command: str
    """Its words, with `{}` for the id."""
    call: Callable[[Any], object]
    """Given a `Trial`, `Experiment`, `Checkpoint` or `Model`."""
    route: str
    body: Body
    finds: Callable[[Tracker, str], Any]
    ids: tuple[str, ...]
    """Of one to which it can be done, of those to which it cannot, and of an unknown one."""


def trial(name: str, command: str, call: Callable[[Trial], object], body: Body = NOTHING) -> Verb:
    route = f"/trials/{{}}/actions/{name}"
    return Verb(command, call, route, body, lambda home, text: home.get_trial(int(text)), ("1", "2", "77"))


def experiment(name: str, command: str, call: Callable[[Experiment], object], body: Body = NOTHING) -> Verb:
    route = f"/experiments/{{}}/actions/{name}"
    return Verb(command, call, route, body, lambda home, text: home.get_experiment(int(text)), ("1", "2", "77"))


def checkpoint(name: str, command: str, call: Callable[[Checkpoint], object], body: Body = NOTHING) -> Verb:
    route = f"/checkpoints/{{}}/actions/{name}"
    return Verb(command, call, route, body, lambda home, text: home.get_checkpoint(text), ("c1", "c2", "none"))


def model(name: str, command: str, call: Callable[[Model], object], body: Body = NOTHING) -> Verb:
    route = f"/models/{{}}/actions/{name}"
    return Verb(command, call, route, body, lambda home, text: home.get_model(int(text)), ("1", "77"))


LONG = "x" * 1025
VERBS = [
    trial("pause", "trial pause {}", Trial.pause),
    trial("kill", "trial kill {}", Trial.kill),
    trial("resume", "trial resume {} --detach", Trial.resume),
    trial("archive", "trial archive {}", Trial.archive),
    trial("unarchive", "trial unarchive {}", Trial.unarchive),
    trial("change", "trial rename {} other", lambda one: one.set_name("other"), {"name": "other"}),
    trial("change", "trial note {} words", lambda one: one.set_notes("words"), {"notes": "words"}),
    trial(
        "change",
        "trial verdict {} keep --why better",
        lambda one: one.set_verdict("keep", "better"),
        {"verdict": "keep", "verdict_reason": "better"},
    ),
    trial("label", "trial label {} best", lambda one: one.add_label("best"), {"add": ["best"]}),
    trial("label", "trial label {} old --remove", lambda one: one.remove_label("old"), {"remove": ["old"]}),
    trial("label", f"trial label {{}} {LONG}", lambda one: one.add_label(LONG), {"add": [LONG]}),
    trial("delete", "trial delete {} --yes", Trial.delete),
    trial("delete", "trial delete {} --yes --force", lambda one: one.delete(force=True), {"force": True}),
    experiment("pause", "experiment pause {}", Experiment.pause),
    experiment("activate", "experiment activate {}", Experiment.activate),
    experiment("cancel", "experiment cancel {}", Experiment.cancel),
    experiment("kill", "experiment kill {}", Experiment.kill),
    experiment("archive", "experiment archive {}", Experiment.archive),
    experiment("unarchive", "experiment unarchive {}", Experiment.unarchive),
    experiment("change", "experiment set name {} other", lambda one: one.set_name("other"), {"name": "other"}),
    experiment("change", "experiment set name {} taken", lambda one: one.set_name("taken"), {"name": "taken"}),
    experiment("change", "experiment set notes {} words", lambda one: one.set_notes("words"), {"notes": "words"}),
    experiment("label", "experiment label {} best", lambda one: one.add_label("best"), {"add": ["best"]}),
    experiment("label", "experiment label {} old --remove", lambda one: one.remove_label("old"), {"remove": ["old"]}),
    experiment("delete", "experiment delete {} --yes", Experiment.delete),
    checkpoint("pin", "checkpoint pin {} --note why", lambda one: one.pin("why"), {"note": "why"}),
    checkpoint("unpin", "checkpoint unpin {}", Checkpoint.unpin),
    checkpoint("delete", "checkpoint delete {} --yes", Checkpoint.delete),
    checkpoint("delete", "checkpoint delete {} --yes --force", lambda one: one.delete(force=True), {"force": True}),
    model("delete", "model delete {} --yes", Model.delete),
]


@needs("many processes")
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.command.replace(LONG, "long").format("ID"))
def test_a_verb_is_the_same_through_all_doors(verb: Verb, tmp_path: Path, warm_cli: WarmCli) -> None:
    """A verb has the same effect and error by command, client and page, on any trial, also an unknown one."""
    for name in verb.ids:
        by_command, by_call, by_page = (_DoorHome(tmp_path / f"{name}-{door}") for door in ("cli", "client", "page"))
        seen = [by_command.command(warm_cli, verb, name), by_call.call(verb, name), by_page.visit(verb, name)]

        assert seen[1] == seen[0]
        assert seen[2] == seen[0]


class _DoorHome:
    """A home in which trial 1 has ended and trial 2 runs, each with a checkpoint, of which the second is pinned.

    Of the experiments, which have one trial each, the second runs.
    """

    def __init__(self, root: Path) -> None:
        self.home = Home.create(root)
        for number, name in ((1, "first"), (2, "taken")):
            folder = new_trial(self.home, name)
            begun = folder.read_record()
            begun.labels, begun.name = ["old"], name
            folder.write_record(begun)
            outcome = [Ended(time=2.0, outcome="paused")] if number == 1 else []
            record(folder, report(1, loss=1.0), stored(f"c{number}", 1, f"file://{root}/checkpoints"), *outcome)
        self.alive = AliveLock(self.home.folder(2).alive_path(1))
        models.create(self.home, "digits")
        checkpoints.pin(self.home, "c2", "kept")

    def command(self, cli: WarmCli, verb: Verb, name: str) -> tuple[str, list[tuple[object, ...]]]:
        ran = cli.run(self.home.root, *verb.command.format(name).split(" "), CORE_SDK_HOME=str(self.home.root))
        words = "" if ran.status == 0 else ran.errors.strip().removeprefix("core-sdk: ")
        return self._after(words)

    def call(self, verb: Verb, name: str) -> tuple[str, list[tuple[object, ...]]]:
        try:
            verb.call(verb.finds(Tracker(self.home.root), name))
        except (CoreSDKError, ValueError, TypeError) as error:
            return self._after(str(error))
        return self._after("")

    def visit(self, verb: Verb, name: str) -> tuple[str, list[tuple[object, ...]]]:
        visitor = Visitor(self.home)
        answer = visitor.act(verb.route.format(name), verb.body)
        visitor.close()
        return self._after("" if answer.status == 200 else answer.json["error"]["message"])

    def _after(self, words: str) -> tuple[str, list[tuple[object, ...]]]:
        """Returns the words of a refusal, and what the home says afterwards of all that a verb can change."""
        self.alive.release()
        with open_view(self.home) as view:
            told: list[tuple[object, ...]] = [
                (one.trial_id, one.state, one.name, one.notes, one.verdict, one.verdict_reason) for one in view.trials()
            ]
            told += [(one.trial_id, one.labels, one.is_archived, one.num_attempts) for one in view.trials()]
            told += [
                (one.experiment_id, one.state, one.name, one.description, one.labels, one.is_archived)
                for one in view.experiments()
            ]
            told += [(one.storage_id, one.state, one.is_pinned, one.pin_note) for one in view.checkpoints()]
        told += [(one.model_id, one.name) for one in Registry(self.home).models()]
        return words.replace(str(self.home.root), "HOME"), told
