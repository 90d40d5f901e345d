"""The files of a trial that are sent to a workspace, by their names in the trial's folder. Pure."""

from __future__ import annotations

import re
from typing import Literal

from core_sdk._ground.records import WRITER_NAME
from core_sdk._home.media import is_media_name

Kind = Literal["growing", "whole", "media", "changes", "code", "checkpoint"]
"""How a file is sent.

- growing: only appended to, and sent from an offset on.
- whole: replaced as a whole.
- media: named by its content, and sent once.
- changes: lines that several homes may add to, of which the missing ones are added.
- code: an archive of the home, named by its content.
- checkpoint: a file of a checkpoint of the trial.

Files of the trial's experiment are sent with one of its trials.
"""

_ATTEMPT = "[1-9][0-9]{0,8}"
_PART = r"(?!\.{1,2}(?:/|$))[^/\0]{1,255}"
_GROWING = re.compile(
    rf"{_ATTEMPT}\.(?:(?:rank{_ATTEMPT}\.|writer\.{WRITER_NAME}\.)?journal|log)|operations\.journal"
    rf"|node{_ATTEMPT}/{_ATTEMPT}\.log|tensorboard/{_PART}(?:/{_PART}){{0,30}}|experiment/events\.journal"
)
_WHOLE = re.compile(
    rf"(?:node{_ATTEMPT}/)?{_ATTEMPT}\.(?:environment|exit|stall\.txt)|{_ATTEMPT}\.(?:run\.json|imported\.tar\.gz)"
    rf"|command\.json|sources\.tar\.gz|profiles/{_PART}|experiment/(?:config\.(?:json|yaml)|(?:submission|search)\.json)"
)
_MEDIA = re.compile(r"media/([^/]+)")
_CODE = re.compile(r"code/([0-9a-f]{64})\.tar\.gz")
_CHECKPOINT = re.compile(rf"checkpoints/({_PART})/({_PART}(?:/{_PART}){{0,30}})")
_RANK = re.compile(rf"{_ATTEMPT}\.(?:rank{_ATTEMPT}\.)?journal")

_EXPERIMENT = "experiment/"

CHANGES = "changes.journal"
COMMAND = "command.json"
EVENTS = f"{_EXPERIMENT}events.journal"
CONFIG, ORIGINAL_CONFIG = f"{_EXPERIMENT}config.json", f"{_EXPERIMENT}config.yaml"
SUBMISSION = f"{_EXPERIMENT}submission.json"
SEARCH = f"{_EXPERIMENT}search.json"
"""A part of the experiment's record."""


def kind_of(name: str) -> Kind | None:
    """Returns how a file is sent; None for one that is not."""
    if name == CHANGES:
        return "changes"
    if _GROWING.fullmatch(name):
        return "growing"
    if _WHOLE.fullmatch(name):
        return "whole"
    if (match := _MEDIA.fullmatch(name)) and is_media_name(match[1]):
        return "media"
    if _CODE.fullmatch(name):
        return "code"
    return "checkpoint" if _CHECKPOINT.fullmatch(name) else None


def is_of_rank(name: str) -> bool:
    """Returns whether this is the journal of a rank. If it differs, so does the trial."""
    return _RANK.fullmatch(name) is not None


def is_renumbered(name: str) -> bool:
    """Returns whether the file has the trial's id in it, which differs in the workspace."""
    return name.endswith(".run.json")


def experiment_file(name: str) -> str | None:
    """Returns the name of a file in the folder of the trial's experiment; None if it is the trial's own."""
    return name.removeprefix(_EXPERIMENT) if name.startswith(_EXPERIMENT) else None


def code_digest(name: str) -> str:
    """Returns the SHA-256 by which an archive of code is named."""
    return name.removeprefix("code/").partition(".")[0]


def checkpoint_file(name: str) -> tuple[str, str]:
    """Returns the checkpoint's id and the name of its file."""
    storage_id, _, file = name.removeprefix("checkpoints/").partition("/")
    return storage_id, file
