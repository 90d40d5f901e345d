"""Every verb through its doors, command, client and page: the same effect, and the same words of a refusal."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from home.journals import new_trial, record, report, stored
from interfaces.cli.commands import WarmCli
from interfaces.server.visitor import Visitor

from core_sdk._execution.steering import checkpoints, experiments, models, trials
from core_sdk._execution.steering.table import VERBS
from core_sdk._execution.steering.verb import Subject, Verb
from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import Ended
from core_sdk._home import Home, open_view
from core_sdk._home.registry import Registry
from core_sdk._interfaces.server.routes.actions import arguments_of
from core_sdk.client import Checkpoint, Experiment, Model, ModelVersion, Tracker, Trial
from core_sdk.errors import CoreSDKError


@dataclass(frozen=True)
class Case:
    """A verb with its arguments, as each door takes them."""

    verb: Verb[..., Any]
    command: str = ""
    """The words of the command, with `{}` for the id; empty if there is none."""
    call: Callable[[Any], object] | None = None
    """Given what is found; None if there is no method."""
    body: Mapping[str, Any] = field(default_factory=dict)
    finds: Callable[[Tracker, str], Any] | None = None
    """By default, the object of the client that is the verb's subject."""


FINDS: Mapping[Subject, Callable[[Tracker, str], Any]] = {
    "trial": lambda home, text: home.get_trial(int(text)),
    "experiment": lambda home, text: home.get_experiment(int(text)),
    "checkpoint": lambda home, text: home.get_checkpoint(text),
    "registry": lambda home, text: home,
    "model": lambda home, text: home.get_model(int(text)),
    "version": lambda home, text: home.get_model("digits").get_version(int(text)),
}
IDS: Mapping[Subject, tuple[str, ...]] = {
    "trial": ("1", "2", "77"),
    "experiment": ("1", "2", "77"),
    "checkpoint": ("c1", "c2", "none"),
    "registry": ("",),
    "model": ("1", "77"),
    "version": ("1", "77"),
}
"""Of one to which most verbs can be done, of those to which some cannot, and of an unknown one."""


LONG = "x" * 1025
NOTES = {"notes": "words", "notes_before": ""}
DESCRIPTION = {"description": "words", "description_before": ""}
CASES = [
    Case(trials.pause, "trial pause {}", Trial.pause),
    Case(trials.kill, "trial kill {}", Trial.kill),
    Case(trials.resume, "trial resume {} --detach", Trial.resume),
    Case(trials.archive, "trial archive {}", Trial.archive),
    Case(trials.unarchive, "trial unarchive {}", Trial.unarchive),
    Case(trials.describe, "trial rename {} other", lambda one: one.set_name("other"), {"name": "other"}),
    Case(trials.describe, "trial note {} words", lambda one: one.set_notes("words"), NOTES),
    Case(
        trials.describe,
        "trial verdict {} keep --why better",
        lambda one: one.set_verdict("keep", "better"),
        {"verdict": "keep", "verdict_reason": "better"},
    ),
    Case(trials.label, "trial label {} best", lambda one: one.add_label("best"), {"add": ["best"]}),
    Case(trials.label, "trial label {} old --remove", lambda one: one.remove_label("old"), {"remove": ["old"]}),
    Case(trials.label, f"trial label {{}} {LONG}", lambda one: one.add_label(LONG), {"add": [LONG]}),
    Case(trials.delete, "trial delete {} --yes", Trial.delete),
    Case(trials.delete, "trial delete {} --yes --force", lambda one: one.delete(force=True), {"force": True}),
    Case(experiments.pause, "experiment pause {}", Experiment.pause),
    Case(experiments.activate, "experiment activate {}", Experiment.activate),
    Case(experiments.cancel, "experiment cancel {}", Experiment.cancel),
    Case(experiments.kill, "experiment kill {}", Experiment.kill),
    Case(experiments.archive, "experiment archive {}", Experiment.archive),
    Case(experiments.unarchive, "experiment unarchive {}", Experiment.unarchive),
    Case(experiments.describe, "experiment set name {} other", lambda one: one.set_name("other"), {"name": "other"}),
    Case(experiments.describe, "experiment set name {} taken", lambda one: one.set_name("taken"), {"name": "taken"}),
    Case(experiments.describe, "experiment set notes {} words", lambda one: one.set_notes("words"), NOTES),
    Case(
        experiments.describe,
        "experiment set description {} words",
        lambda one: one.set_description("words"),
        {"description": "words"},
    ),
    Case(experiments.label, "experiment label {} best", lambda one: one.add_label("best"), {"add": ["best"]}),
    Case(
        experiments.label, "experiment label {} old --remove", lambda one: one.remove_label("old"), {"remove": ["old"]}
    ),
    Case(experiments.set_slots, "experiment set priority {} 3", body={"priority": 3}),
    Case(experiments.set_slots, "experiment set max-slots {} none", body={"max_slots": -1}),
    Case(experiments.delete, "experiment delete {} --yes", Experiment.delete),
    Case(experiments.delete, "experiment delete {} --yes --force", lambda one: one.delete(force=True), {"force": True}),
    Case(checkpoints.pin, "checkpoint pin {} --note why", lambda one: one.pin("why"), {"note": "why"}),
    Case(checkpoints.unpin, "checkpoint unpin {}", Checkpoint.unpin),
    Case(checkpoints.verify, "", Checkpoint.verify),
    Case(checkpoints.delete, "checkpoint delete {} --yes", Checkpoint.delete),
    Case(checkpoints.delete, "checkpoint delete {} --yes --force", lambda one: one.delete(force=True), {"force": True}),
    Case(
        models.register,
        "model register-version digits {} --name first --notes words",
        lambda register: register(name="first", notes="words"),
        {"model": "digits", "name": "first", "notes": "words"},
        lambda home, text: partial(home.get_model("digits").register_version, text),
    ),
    Case(
        models.create,
        "model create other --description words --label new",
        lambda home: home.create_model("other", "words", labels=["new"]),
        {"name": "other", "description": "words", "labels": ["new"]},
    ),
    Case(models.create, "model create digits", lambda home: home.create_model("digits"), {"name": "digits"}),
    Case(
        models.create,
        "",
        lambda home: home.create_model("other", metadata={"a": 1}),
        {"name": "other", "metadata": {"a": 1}},
    ),
    Case(models.describe, "", lambda one: one.set_description("words"), DESCRIPTION),
    Case(models.label, body={"add": ["best"], "remove": ["old"]}),
    Case(models.archive, "", Model.archive),
    Case(models.unarchive, "", Model.unarchive),
    Case(models.delete, "model delete {} --yes", Model.delete),
    Case(models.describe_version, "", lambda one: one.set_name("other"), {"name": "other"}),
    Case(models.describe_version, "", lambda one: one.set_notes("words"), NOTES),
    Case(models.delete_version, "model delete digits --version {} --yes", ModelVersion.delete),
]
WITHOUT_COMMAND = {models.describe, models.label, models.archive, models.unarchive, models.describe_version}
SAID_OTHERWISE = {checkpoints.verify}
"""The commands of these do something to many at once, and say how each has fared."""
WITHOUT_METHOD = {experiments.set_slots, models.label}
WITHOUT_ROUTE = {
    experiments.submit,
    experiments.move,
    experiments.set_labels,
    checkpoints.add_metadata,
    checkpoints.remove_metadata,
    checkpoints.delete_files,
    models.set_labels,
    models.add_metadata,
    models.remove_metadata,
}


def test_every_verb_has_its_doors() -> None:
    """The cases have each verb with each of its arguments, and a command and a method for all verbs but these."""
    for verb in VERBS:
        tried = {name for case in CASES if case.verb is verb for name in case.body}
        assert tried == arguments_of(verb).keys(), verb.name

    with_command = {case.verb for case in CASES if case.command}
    with_method = {case.verb for case in CASES if case.call}
    assert set(VERBS) - with_command == WITHOUT_COMMAND | SAID_OTHERWISE
    assert set(VERBS) - with_method == WITHOUT_METHOD


def test_what_changes_something_is_a_verb() -> None:
    """Every public function of steering that is given a home and changes something is a verb, but for these."""
    found: set[object] = {
        one
        for module in (trials, experiments, checkpoints, models)
        for name, one in vars(module).items()
        if inspect.isfunction(one) and one.__module__ == module.__name__ and not name.startswith("_")
        if "home" in inspect.signature(one).parameters
    }

    assert found == WITHOUT_ROUTE | {trials.check_steered_alone, experiments.is_submitted, experiments.check_submitted}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.verb.subject}-{case.verb.name}")
def test_a_verb_is_the_same_through_all_doors(case: Case, tmp_path: Path, warm_cli: WarmCli) -> None:
    """A verb has the same effect and error by command, client and page, on any trial, also an unknown one."""
    for name in IDS[case.verb.subject]:
        by_command, by_call, by_page = (_DoorHome(tmp_path / f"{name}-{door}") for door in ("cli", "client", "page"))
        seen = [by_page.visit(case, name)]
        if case.command:
            seen.append(by_command.command(warm_cli, case, name))
        if case.call is not None:
            seen.append(by_call.call(case, name))

        assert [one for one in seen if one != seen[0]] == []


class _DoorHome:
    """A home in which trial 1 has ended and trial 2 runs, each with a checkpoint, of which the second is pinned.

    Of the experiments, which have one trial each, the second runs. The checkpoint of trial 3 is a version of a model.
    """

    def __init__(self, root: Path) -> None:
        self.home = Home.create(root)
        for number, name in ((1, "first"), (2, "taken"), (3, "third")):
            folder = new_trial(self.home, name)
            begun = folder.read_record()
            begun.labels, begun.name = ["old"], name
            folder.write_record(begun)
            outcome = [Ended(time=2.0, outcome="paused")] if number != 2 else []
            record(folder, report(1, loss=1.0), stored(f"c{number}", 1, f"file://{root}/checkpoints"), *outcome)
        self.alive = AliveLock(self.home.folder(2).alive_path(1))
        models.create(self.home, "digits", labels=["old"])
        models.register(self.home, "c3", "digits")
        checkpoints.pin(self.home, "c2", "kept")

    def command(self, cli: WarmCli, case: Case, name: str) -> tuple[str, list[tuple[object, ...]]]:
        ran = cli.run(self.home.root, *case.command.format(name).split(" "), CORE_SDK_HOME=str(self.home.root))
        words = "" if ran.status == 0 else ran.errors.strip().removeprefix("core-sdk: ")
        return self._after(words)

    def call(self, case: Case, name: str) -> tuple[str, list[tuple[object, ...]]]:
        assert case.call is not None
        finds = case.finds or FINDS[case.verb.subject]
        try:
            case.call(finds(Tracker(self.home.root), name))
        except (CoreSDKError, ValueError, TypeError) as error:
            return self._after(str(error))
        return self._after("")

    def visit(self, case: Case, name: str) -> tuple[str, list[tuple[object, ...]]]:
        visitor = Visitor(self.home)
        ids = dict.fromkeys(("trial_id", "experiment_id", "storage_id", "model_id"), name)
        if case.verb.subject == "version":
            ids |= {"model_id": "1", "version": name}
        answer = visitor.act(case.verb.path.format(**ids), case.body)
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
        for model in Registry(self.home).models():
            told += [(model.model_id, model.name, model.description, model.labels, model.metadata, model.is_archived)]
            told += [(one.version, one.checkpoint, one.name, one.notes) for one in model.versions]
        return words.replace(str(self.home.root), "HOME"), told
