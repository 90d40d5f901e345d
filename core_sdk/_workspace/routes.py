"""The doors of a workspace for programs, as routes of Starlette below `/api/v1` of its address.

Whoever mounts them decides who may read and write, and says who asks: nothing here knows roles or tokens. An answer of
507 says that the disk is full, and how much was taken before.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.files import explained, is_full
from core_sdk._home import Home, View, open_view
from core_sdk._home.moving.archive import export_trials
from core_sdk._workspace.actions.requesting import HandedRequests
from core_sdk._workspace.presence import Presence
from core_sdk._workspace.questions import QUESTIONS, Question, ToldError, encode_error
from core_sdk._workspace.receiving import RecordReceiver
from core_sdk._workspace.wire import (
    ASKED_WRONGLY,
    MOST_BYTES,
    MOST_TRIALS,
    VERSION,
    Announcement,
    AskedArchive,
    AskedCheckpoint,
    DamagedRequestError,
    Heard,
    PieceAnswers,
    SignOfLife,
    unframed,
)
from core_sdk.errors import CoreSDKError

T = TypeVar("T")

BAD_REQUEST, TOO_LARGE, TOO_OLD, FULL = 400, 413, 426, 507
_FAILED = 500
_MESSAGE_PACK = "application/msgpack"


def receiving_routes(home: Home) -> list[Route]:
    """Returns the routes by which other homes send their records into this one."""
    receiver, presence, requests = RecordReceiver(home), Presence(home), HandedRequests(home)
    decode_sign = json_decoder(SignOfLife)
    decode_announcement, decode_asked = json_decoder(Announcement), json_decoder(AskedCheckpoint)

    def announce(body: bytes) -> Response:
        told = decode_announcement(body)
        if told.version > VERSION or len(told.trials) > MOST_TRIALS:
            return _problem(TOO_OLD, "this server is older than what sends to it: update the server")
        return _answer(receiver.announce(told))

    def receive(body: bytes) -> Response:
        answers = receiver.receive(list(unframed(body)))
        return _answer(answers, FULL if answers.problem else 200)

    def checkpoint(body: bytes) -> Response:
        asked = decode_asked(body)
        return _answer(receiver.checkpoint(asked.trial, asked.storage_id, is_complete=asked.is_complete))

    def hear(body: bytes) -> Response:
        sign = decode_sign(body)
        presence.hear(sign)
        return _answer(Heard(requests.hear(sign)))

    doors = {"trials": announce, "pieces": receive, "checkpoints": checkpoint, "running": hear}
    return [Route(f"/push/{name}", _door(act), methods=["POST"]) for name, act in doors.items()]


class ReaderRoute(Route):
    """A route that whoever reads may call."""


def asking_routes(home: Home) -> list[Route]:
    """Returns the routes by which the questions of a view are asked of the home."""
    lock, stack = threading.Lock(), contextlib.ExitStack()
    opened: list[View] = []

    def ask(question: Question, body: bytes) -> Response:
        with lock:  # a view is used by one thread at a time
            if not opened:
                opened.append(stack.enter_context(open_view(home, reads=False)))
            try:
                opened[0].refresh()
                return Response(question.asked(opened[0], body), media_type=_MESSAGE_PACK)
            except (CoreSDKError, ValueError) as error:
                return Response(encode_error(ToldError.of(error)), ASKED_WRONGLY, media_type=_MESSAGE_PACK)

    return [
        ReaderRoute(f"/ask/{name}", _door(functools.partial(ask, question)), methods=["POST"])
        for name, question in QUESTIONS.items()
    ]


def fetching_routes(home: Home) -> list[Route]:
    """Returns the route by which a trial that has ended is fetched, as `core-sdk trial export` writes it.

    Its command is not masked, as on a page, so that it is for those who may write.
    """
    decode_asked = json_decoder(AskedArchive)

    def fetch(body: bytes) -> Response:
        trial_id = decode_asked(body).trial_id
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="core-sdk-fetch-"))
            archive = Path(directory) / "trial.tar"
            try:
                export_trials(home, [trial_id], archive)
            except CoreSDKError as error:
                return Response(encode_error(ToldError.of(error)), ASKED_WRONGLY, media_type=_MESSAGE_PACK)
            sent = BackgroundTask(stack.pop_all().close)
        return FileResponse(archive, media_type="application/x-tar", background=sent)

    return [Route("/fetch", _door(fetch), methods=["POST"])]


def workspace_routes(home: Home) -> list[Route]:
    """Returns all routes of a workspace that programs call."""
    return [*receiving_routes(home), *fetching_routes(home), *asking_routes(home)]


def _door(act: Callable[[bytes], Response]) -> Callable[[Request], object]:
    async def answer(request: Request) -> Response:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BYTES:
                return _problem(TOO_LARGE, f"a request has at most {MOST_BYTES:,} bytes")
        return await run_in_threadpool(_checked, act, bytes(body))

    return answer


def _checked(act: Callable[[bytes], Response], body: bytes) -> Response:
    try:
        return act(body)
    except (msgspec.MsgspecError, DamagedRequestError, ValueError) as error:
        return _problem(BAD_REQUEST, str(error))
    except OSError as error:
        return _problem(FULL if is_full(error) else _FAILED, explained(error).strerror or str(error))
    except CoreSDKError as error:
        return _problem(_FAILED, str(error))


def _problem(status: int, problem: str) -> Response:
    return _answer(PieceAnswers([], problem), status)


def _answer(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
