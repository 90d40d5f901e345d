"""The model registry on the command line."""

from __future__ import annotations

import json

import pytest
from interfaces.cli.commands import Cli
from interfaces.cli.recorded import new_attempt, new_trial, store

from core_sdk._home import Home


@pytest.fixture(autouse=True)
def checkpoints(home: Home) -> None:
    """A trial with the checkpoints abc and xyz."""
    training = new_attempt(new_trial(home))
    store(training, "abc", 10)
    store(training, "xyz", 20)
    training.end()


def test_a_checkpoint_becomes_a_version_of_a_model(cli: Cli) -> None:
    """The first letters of its id are enough, and the model is found by its name or its number."""
    created = cli("model", "create", "digits", "--description", "reads digits", "--label", "vision")
    first = cli("model", "register-version", "digits", "ab", "--name", "old")
    second = cli("model", "register-version", "1", "xyz", "--notes", "for the paper", "--json")

    assert created.output == "created model 1\n"
    assert first.output == "registered checkpoint abc as version 1\n"
    assert json.loads(second.output)["version"] == 2
    versions = json.loads(cli("model", "list-versions", "digits", "--json").output)
    assert [(version["checkpoint"], version["name"], version["notes"]) for version in versions] == [
        ("xyz", "", "for the paper"),
        ("abc", "old", ""),
    ]
    assert "xyz" in cli("model", "list-versions", "digits").output
    assert "digits" in cli("m", "list").output
    assert json.loads(cli("model", "list", "--json").output)[0]["num_versions"] == 2
    assert json.loads(cli("model", "describe", "digits", "--json").output)["labels"] == ["vision"]
    assert "reads digits" in cli("model", "describe", "1").output


def test_a_registered_checkpoint_is_deleted_only_after_its_version(cli: Cli) -> None:
    """A registered checkpoint cannot be deleted before its version; the refusal names the model."""
    cli("model", "create", "digits")
    cli("model", "register-version", "digits", "abc")

    refused = cli("checkpoint", "delete", "abc", "--yes", "--force")
    unasked = cli("model", "delete", "digits", "--version", "1")
    deleted = cli("model", "delete", "digits", "--version", "1", "--yes")
    agreed = cli("checkpoint", "delete", "abc", "--yes")

    assert (refused.status, unasked.status, deleted.status, agreed.status) == (1, 1, 0, 0)
    assert "it is version 1 of the model 'digits'" in refused.errors
    assert "core-sdk model delete" in refused.errors
    assert cli("model", "list-versions", "digits").output == "No versions.\n"
    assert cli("model", "delete", "digits", "--yes").output == "deleted model 1\n"
    assert cli("model", "list").output.startswith("No models in the home /")


def test_wrong_models_are_refused(cli: Cli) -> None:
    """An unknown model ends with status 3, and a name that is taken with status 2."""
    cli("model", "create", "digits")

    taken = cli("model", "create", "digits")
    missing = cli("model", "describe", "letters")
    no_version = cli("model", "delete", "digits", "--version", "7", "--yes")
    no_checkpoint = cli("model", "register-version", "digits", "nothing")

    assert (taken.status, missing.status, no_version.status, no_checkpoint.status) == (2, 3, 3, 3)
    assert "another model is called 'digits'" in taken.errors
