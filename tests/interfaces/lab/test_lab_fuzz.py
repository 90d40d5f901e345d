"""Requests made at random to a lab, in each role: none fails in the server, and none is told a foreign record."""

from __future__ import annotations

import random
import re
from urllib.parse import quote

import pytest
from interfaces.lab.lab_visitor import ASKERS, Asked, LabVisitor
from interfaces.lab.test_lab_door import IDS
from interfaces.server.test_fuzz_requests import BODIES, METHODS, NAMES, VALUES

from core_sdk._interfaces.lab.routes import GuardedRoute
from core_sdk._workspace.wire import ASKED_WRONGLY

WORKSPACES = ["vision"] * 12 + ["speech", "nothing", "..", "vision/../speech", "%2e%2e", "Vision", "", "\x00", "é"]
OWN_BODIES = [
    b'{"workspace": "speech"}',
    b'{"workspace": "vision", "role": "owner"}',
    b'{"trial_id": 1}',
    b'{"person": "x", "role": "owner"}',
    b'{"invitation": "lab_"}',
    b'{"add": ["fuzzed"]}',
]
LEFT_OUT = ("delete", "end")
"""The ends of addresses of what may rightly succeed, and would leave nothing to ask for."""
FOREIGN = {
    "stranger": re.compile(rb"vision-\d"),
    "link": re.compile(rb"speech-\d|vision-[12]"),
    "prometheus": re.compile(rb"speech-\d|vision-\d"),
    "invited": re.compile(rb"speech-\d|vision-\d"),
    "nobody": re.compile(rb"speech-\d|vision-\d"),
    "expired": re.compile(rb"speech-\d|vision-\d"),
    "revoked": re.compile(rb"speech-\d|vision-\d"),
}
"""What no answer to them may hold: the names of trials of others."""
OF_MEMBERS = re.compile(rb"speech-\d")


def drawn_path(drawn: random.Random, route: GuardedRoute, *, is_of_lab: bool) -> str:
    ids = {name: value if drawn.random() < 0.6 else drawn.choice(["2", "3", *VALUES]) for name, value in IDS.items()}
    path = re.sub(r"{(\w+)}", lambda found: ids[found[1]], route.path)
    return path if is_of_lab else f"/w/{drawn.choice(WORKSPACES)}{path}"


def drawn_request(drawn: random.Random, lab: LabVisitor, asker: str) -> Asked:
    is_of_lab = drawn.random() < 0.15
    table = lab.door.of_lab if is_of_lab else lab.door.of_workspaces
    route = drawn.choice([one for one in table.routes if one.path.rpartition("/")[2] not in (*LEFT_OUT, "events")])
    names = NAMES if drawn.random() < 0.5 else ["search", "where", "trials", "trial_id", "name", "limit", "ticket"]
    query = "&".join(
        f"{drawn.choice(names)}={quote(drawn.choice(VALUES), safe='', errors='replace')}"
        for _ in range(drawn.randrange(4))
    )
    headers = {"x_core_sdk_action": "1"} if drawn.random() < 0.8 else {}
    headers |= {"content_type": "application/json"} if drawn.random() < 0.8 else {}
    headers |= {"cookie": drawn.choice(["__Host-core-sdk=x", "a=b; ;;", "=" * 50])} if drawn.random() < 0.1 else {}
    headers |= {"x_forwarded_user": "owner"} if drawn.random() < 0.2 else {}
    method = route.method if drawn.random() < 0.8 else drawn.choice(METHODS)
    body = drawn.choice([*BODIES, *OWN_BODIES])
    return Asked(asker, method, f"{drawn_path(drawn, route, is_of_lab=is_of_lab)}?{query}", headers, body)


def fuzz(lab: LabVisitor, num_requests: int, seed: int) -> None:
    for asker in ASKERS:
        drawn = random.Random(f"{seed} {asker}")
        asked = [drawn_request(drawn, lab, asker) for _ in range(num_requests)]

        answers = lab.ask_all(asked)

        for one, answer in zip(asked, answers, strict=True):
            case = seed, one, answer.status, answer.content[:300]
            assert answer.status in (200, 304, 307, 400, 401, 403, 404, 405, 409, 413, 415, ASKED_WRONGLY, 503), case
            assert FOREIGN.get(asker, OF_MEMBERS).search(answer.content) is None, case
            assert b"Traceback" not in answer.content, case
            assert not [secret for secret in lab.secrets.values() if secret.encode() in answer.content], case


def test_random_requests_in_each_role_neither_fail_nor_tell_of_others(lab: LabVisitor) -> None:
    """A hundred random requests in each role cause no failure, and no answer has a record of others."""
    fuzz(lab, 100, seed=1)

    assert [lab.lab.home(name).trial_ids() for name in ("vision", "speech")] == [[1, 2, 3], [1]]


@pytest.mark.timeout(3000)
def test_two_thousand_random_requests_in_each_role(lab: LabVisitor) -> None:
    """Two thousand random requests in each role cause no failure, and no answer has a record of others."""
    fuzz(lab, 2000, seed=2)

    assert [lab.lab.home(name).trial_ids() for name in ("vision", "speech")] == [[1, 2, 3], [1]]
