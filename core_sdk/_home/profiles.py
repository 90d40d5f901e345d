"""Requests to trace steps of a running attempt, and the answers: two small files beside its journal."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.files import read_regular, write_atomically
from core_sdk._home.folders import TrialFolder


class ProfileRequest(msgspec.Struct, frozen=True):
    """`<home>/runs/<id>/<attempt>.profile.json`"""

    num_steps: int
    identity: str
    format: int = 1


class ProfileAnswer(msgspec.Struct, frozen=True):
    """`<home>/runs/<id>/<attempt>.profiled.json`"""

    identity: str
    path: str = ""
    """The trace; empty if there is none."""
    problem: str = ""
    format: int = 1


_decode_request = json_decoder(ProfileRequest)
_decode_answer = json_decoder(ProfileAnswer)


def request_profile(folder: TrialFolder, attempt: int, num_steps: int) -> ProfileRequest:
    """Asks the attempt to trace its next steps."""
    request = ProfileRequest(num_steps, os.urandom(4).hex())
    write_atomically(_request_path(folder, attempt), msgspec.json.encode(request))
    return request


def read_request(folder: TrialFolder, attempt: int) -> ProfileRequest | None:
    """Returns the newest request; None if there is none that can be read."""
    try:
        return _decode_request(read_regular(_request_path(folder, attempt)))
    except (FileNotFoundError, ValueError):
        return None


def answer(
    folder: TrialFolder, attempt: int, request: ProfileRequest, *, path: Path | None = None, problem: str = ""
) -> None:
    """Says what has become of a request."""
    told = ProfileAnswer(request.identity, "" if path is None else str(path), problem)
    write_atomically(_answer_path(folder, attempt), msgspec.json.encode(told))


def read_answer(folder: TrialFolder, attempt: int, request: ProfileRequest) -> ProfileAnswer | None:
    """Returns the answer to this request; None as long as there is none."""
    try:
        found = _decode_answer(read_regular(_answer_path(folder, attempt)))
    except (FileNotFoundError, ValueError):
        return None
    return found if found.identity == request.identity else None


def _request_path(folder: TrialFolder, attempt: int) -> Path:
    return folder.path / f"{attempt}.profile.json"


def _answer_path(folder: TrialFolder, attempt: int) -> Path:
    return folder.path / f"{attempt}.profiled.json"
