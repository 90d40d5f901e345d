"""Requests made at random: none may fail in the server, change anything, or read what is not the home's."""

from __future__ import annotations

import random
from pathlib import Path
from urllib.parse import quote

import pytest
from interfaces.server.test_security import PATHS, url_of
from interfaces.server.visitor import HOST, PORT, TOKEN, Visitor

from core_sdk._home import Home
from core_sdk._interfaces.server.routes.table import ROUTES

METHODS = ["GET"] * 12 + ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "", "get", "\x00"]
OWN_NAMES = {name for route in ROUTES for name in route.query.__struct_fields__}
NAMES = sorted(OWN_NAMES | {"token", "ticket", "", "a[]", "__proto__"})
VALUES = [
    "", "0", "1", "-1", "2", "3", "10", "1000", "1e9", "nan", "inf", "2.5", "true", "null", "9" * 30, "9" * 400,
    "0x10", "\u0661", "id", "lr", "loss", "training", "training.loss", "-loss", "min.loss", "max.accuracy",
    "experiment", "c1", "steps", "time", "epochs", "lr>0.1", "lr >", "(((",
    "state=COMPLETED and not (lr<1 or label=x)", "'", '"', "a" * 990, "\x00", "\ud800", "é" * 100, "😀", "<script>",
    "%00", "%", "&&", "../..", "INFO", "ERROR", "*", "-9223372036854775808", "9223372036854775807",
    "9223372036854775808",
]  # fmt: skip
HEADERS: list[tuple[bytes, list[bytes]]] = [
    (b"host", [HOST.encode()] * 20 + [b"evil", b"", b"\xff" * 10]),
    (b"authorization", [f"Bearer {TOKEN}".encode()] * 20 + [b"Bearer", b"", b"Basic x", b"Bearer \xff\xfe",
                       b"bearer  " + b"x" * 999]),
    (b"cookie", [b"", b"a=b; ;;=;", b"\xff\xff", f"core-sdk-{PORT}={TOKEN}".encode(), b'x="\\"', b";" * 500]),
    (b"origin", [b""] * 20 + [b"null", b"\xff", f"http://{HOST}".encode()]),
    (b"content-type", [b"application/json", b"", b"text/plain", b"application/json; charset=\xff"]),
    (b"x-core-sdk-action", [b"1", b"", b"2"]),
    (b"service-worker", [b""] * 20 + [b"script"]),
    (b"if-none-match", [b"", b'"1"', b"*", b"\xff"]),
    (b"content-length", [b"", b"-1", b"x", b"99999999999"]),
    (b"transfer-encoding", [b"", b"chunked"]),
]  # fmt: skip
BODIES = [b"", b"{}", b"[]", b"null", b"{", b'{"add": ["x"]}', b'{"add": 1}', b"\xff",
          b'{"note": "' + b"x" * 2000 + b'"}',
          b"[" * 5000, b'{"force": "yes"}', b'{"a": 1e999}', b"0" * 70_000, b'{"name": "\\ud800"}']  # fmt: skip


def fuzz(visitor: Visitor, num_requests: int, seed: int) -> None:
    """Deletions, kills and pauses are left out, since they may rightly succeed."""
    drawn = random.Random(seed)
    routes = [
        route
        for route in ROUTES
        if route.path.rpartition("/")[2] not in ("delete", "kill", "pause", "archive", "change")
    ]
    for number in range(num_requests):
        route = drawn.choice(routes)
        path = url_of(route)
        match drawn.randrange(6):
            case 0:
                path = drawn.choice(["/", "/api/v1/", "/api/v1/trials/", "/api/v1/checkpoints/"]) + drawn.choice(PATHS)
            case 1:
                parts = path.split("/")
                parts[drawn.randrange(len(parts))] = drawn.choice(VALUES)
                path = "/".join(parts)
            case _:
                pass
        if path.startswith("/api/v1/events"):
            continue
        pairs = [
            f"{drawn.choice(NAMES)}={quote(drawn.choice(VALUES), safe='', errors='replace')}"
            for _ in range(drawn.randrange(4))
        ]
        own = [
            f"{name}={quote(drawn.choice(VALUES), safe='', errors='replace')}"
            for name in route.query.__struct_fields__
            if drawn.random() < 0.3
        ]
        query = "&".join(own if drawn.random() < 0.7 else pairs)
        headers = [(name, value) for name, values in HEADERS if (value := drawn.choice(values))]
        method = route.method if drawn.random() < 0.7 else drawn.choice(METHODS)

        answer = visitor.send_raw(method, f"{path}?{query}", headers, drawn.choice(BODIES))

        # 503: the master or a storage that a request names is not there.
        assert answer.status in (200, 304, 400, 401, 403, 404, 405, 409, 413, 415, 503), (
            seed,
            number,
            method,
            path,
            query,
        )
        assert b"root:" not in answer.content
        assert b"Traceback" not in answer.content


def everything_outside(home: Home) -> dict[Path, tuple[int, int]]:
    """Returns all files around the home with their sizes and times."""
    root = home.root.parent
    return {
        path: (path.stat().st_size, path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if home.root not in path.parents
    }


def test_random_requests_neither_fail_nor_leave_the_home(visitor: Visitor, home: Home) -> None:
    """Hundreds of random requests cause no failure and touch nothing outside the home."""
    (home.root.parent / "bystander").write_text("root: not to be read")
    before = everything_outside(home)

    fuzz(visitor, 800, seed=1)

    after = everything_outside(home)
    del before[home.root], after[home.root]
    assert after == before
    assert home.trial_ids() == [1, 2, 3]


@pytest.mark.timeout(3000)
def test_a_hundred_thousand_random_requests(visitor: Visitor, home: Home) -> None:
    """A hundred thousand random requests cause no failure and touch nothing outside the home."""
    (home.root.parent / "bystander").write_text("root: not to be read")
    before = everything_outside(home)

    for seed in range(2, 12):
        fuzz(visitor, 10_000, seed)

    after = everything_outside(home)
    del before[home.root], after[home.root]
    assert after == before
    assert home.trial_ids() == [1, 2, 3]
