"""The door of a lab: who may call which route, with which method."""

from __future__ import annotations

import asyncio
import itertools
import re

import pytest
from interfaces.lab.lab_visitor import ASKERS, LAB_PAGE, NOBODIES, Asked, LabVisitor
from interfaces.server.visitor import PAGE, Answer

from core_sdk._interfaces.lab.routes import LINKED, NOT_IN_A_LAB, REPORT, GuardedRoute
from core_sdk._interfaces.server.route import Action
from core_sdk._interfaces.server.routes.table import ROUTES
from core_sdk._workspace.questions import QUESTIONS
from core_sdk._workspace.wire import ASKED_WRONGLY

METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"]
STATUS = {"no_token": 401, "no_such_workspace": 404, "not_allowed": 403, "not_in_a_lab": 403}
REFUSALS = tuple(STATUS)
IDS = {"trial_id": "1", "experiment_id": "1", "storage_id": "c1", "model_id": "1", "version": "1", "file_name": "x.png"}
IDS |= {"credential_id": "0123456789"}
READERS_POSTS = {"/api/v1/markdown", *(f"/api/v1/ask/{name}" for name in QUESTIONS)}
"""All that a reader may call which is not a GET: it changes nothing."""


def address_of(route: GuardedRoute, *, trial_id: int = 1, root: str = "/w/vision") -> str:
    ids = IDS | {"trial_id": str(trial_id)}
    return root + re.sub(r"{(\w+)}", lambda found: ids[found[1]], route.path)


def wanted(asker: str, route: GuardedRoute, *, is_of_lab: bool) -> str:
    """Returns the reason for which the asker is refused, or nothing. It says it again, in other words than the door."""
    path = route.path.removeprefix("/api/v1")
    ways_in = ("/sign-in", "/oidc/begin", "/oidc/callback")
    if (path, route.method) in {("/health", "GET"), ("/session", "POST"), *((way, "GET") for way in ways_in)}:
        return ""
    if asker in (*NOBODIES, "invited"):
        return "no_token"
    if is_of_lab:
        is_metrics = path == "/metrics"
        return "" if (asker not in ("link", "report") and is_metrics == (asker == "prometheus")) else "not_allowed"
    if asker in ("stranger", "prometheus"):
        return "no_such_workspace"
    if path in NOT_IN_A_LAB:
        return "not_in_a_lab"
    if asker in ("link", "report"):
        opened = LINKED if asker == "link" else (REPORT,)
        is_its_own = path in ("/session", "/ticket", "/home") or (route.method == "GET" and path in opened)
        return "" if is_its_own else "not_allowed"
    is_for_owners = path.startswith("/people")
    is_for_writers = path.startswith("/links") or (route.method != "GET" and route.path not in READERS_POSTS)
    least = 2 if is_for_owners else 1 if is_for_writers else 0
    return "" if ("reader", "writer", "owner").index(asker) >= least else "not_allowed"


@pytest.mark.parametrize("is_of_lab", [False, True], ids=["workspace", "lab"])
def test_each_route_is_open_to_those_whose_role_allows_it_and_to_nobody_else(lab: LabVisitor, is_of_lab: bool) -> None:
    """Every route with every method refuses everybody whose role does not allow it."""
    lab.ask("owner", "GET", "/w/vision/api/v1/home")
    asyncio.run(lab.door.workspaces.end())  # streams of events end as soon as they have begun
    table, root = (lab.door.of_lab, "") if is_of_lab else (lab.door.of_workspaces, "/w/vision")
    cases = list(itertools.product(ASKERS, METHODS, table.routes))

    answers = lab.ask_all(Asked(asker, method, address_of(route, root=root)) for asker, method, route in cases)

    for (asker, method, route), answer in zip(cases, answers, strict=True):
        case = asker, method, route.path, answer.status, answer.content[:200]
        problem = problem_of(answer)
        fitting = [
            one for one in table.routes if one.path == route.path and one.method == method.replace("HEAD", "GET")
        ]
        refused = wanted(asker, (fitting or [route])[0], is_of_lab=is_of_lab)
        if not fitting and asker in (*NOBODIES, "invited"):
            assert (answer.status, problem) == (401, "no_token"), case
        elif not fitting:
            assert answer.status == 405 or problem in REFUSALS, case
        elif refused:
            assert (answer.status, problem) == (STATUS[refused], refused), case
        elif method in ("GET", "HEAD"):
            assert problem not in REFUSALS, case
            assert answer.status in (200, 400, 404, 409), case
        elif path_of_records(route):
            assert answer.status in (200, 400, ASKED_WRONGLY), case  # a program's token needs no header of the page
        else:
            assert problem == "no_action_header", case


def problem_of(answer: Answer) -> str:
    """Returns the kind of a refusal; the routes of programs that record have none."""
    is_json = answer.headers.get("content-type") == "application/json"
    return answer.problem if answer.status >= 400 and is_json and "error" in answer.json else ""


def path_of_records(route: GuardedRoute) -> bool:
    return route.path.startswith(("/api/v1/push/", "/api/v1/fetch", "/api/v1/ask/"))


def test_all_routes_of_the_application_are_in_the_table(lab: LabVisitor) -> None:
    """The table names each route of a workspace's application, and what a reader may call there."""
    entries = {(one.path, one.method): one for one in lab.door.of_workspaces.routes}

    assert {one.path for one in entries.values() if one.is_of_records and one.need == "writer"} == {
        f"/api/v1/{name}" for name in ("push/trials", "push/pieces", "push/checkpoints", "push/running", "fetch")
    }
    assert {(f"/api/v1{one.path}", one.method) for one in ROUTES} <= entries.keys()
    of_readers = {one.path for one in entries.values() if one.method != "GET" and one.need == "reader"}
    assert of_readers == READERS_POSTS
    assert {entries[f"/api/v1{one.path}", "POST"].need for one in ROUTES if isinstance(one, Action)} == {
        "writer",
        "another_server",
    }
    assert {f"/api/v1{path}" for path in NOT_IN_A_LAB} == {
        one.path for one in entries.values() if one.need == "another_server"
    }


def test_what_is_in_no_table_is_not_answered(lab: LabVisitor) -> None:
    """An address without a route is refused to nobody as all are, and is not found by members."""
    paths = [
        "/w",
        "/w/",
        "/api/v1/home",
        "/w/vision/api/v1/nothing",
        "/w/vision/../speech/api/v1/home",
        "/w/Vision/",
    ]

    for path in paths:
        assert lab.ask("nobody", "GET", path).status == 401, path
        assert lab.ask("owner", "GET", path).status == 404, path


def test_a_link_opens_its_own_trial_only(lab: LabVisitor) -> None:
    """A link to trial 1 answers nothing about another trial, nor in another workspace."""
    of_trials = [one for one in lab.door.of_workspaces.routes if one.subject == "trial"]

    own = [lab.ask("link", "GET", address_of(one)).status for one in of_trials]
    others = [
        lab.ask("link", "GET", address_of(one, trial_id=trial_id)).problem for one in of_trials for trial_id in (2, 9)
    ]
    odd = [
        lab.ask("link", "GET", f"/w/vision/api/v1/trials/{text}").status for text in ("01", "+1", "1.0", "\u0661", "1 ")
    ]

    assert len(of_trials) == len(LINKED)
    assert set(own) <= {200, 404}
    assert set(others) == {"not_allowed"}
    assert set(odd) == {403}
    assert lab.ask("link", "GET", "/w/speech/api/v1/trials/1").problem == "no_such_workspace"


def test_a_link_to_a_report_opens_that_report_only(lab: LabVisitor) -> None:
    """Neither it nor the session that a page makes of it answers about another experiment."""
    session = lab.ask("report", "GET", "/w/vision/api/v1/session").json["key"]
    lab.secrets["page"] = session or lab.secrets["report"]

    for asker in ("report", "page"):
        own = lab.ask(asker, "GET", "/w/vision/api/v1/experiments/1/report")
        others = [f"/w/vision/api/v1/{path}" for path in ("experiments/2/report", "experiments/1", "trials/1", "runs")]

        assert own.status == 200 and "<h1>" in own.json["html"]
        assert {lab.ask(asker, "GET", path).problem for path in others} == {"not_allowed"}
        assert lab.ask(asker, "GET", "/w/speech/api/v1/experiments/1/report").problem == "no_such_workspace"
    assert session


def test_a_workspace_of_others_cannot_be_told_from_one_that_is_missing(lab: LabVisitor) -> None:
    """A stranger gets the same answer for a workspace that exists, and for one that does not."""
    there = lab.ask("stranger", "GET", "/w/vision/api/v1/home")
    missing = lab.ask("stranger", "GET", "/w/nothing/api/v1/home")

    assert (there.status, there.content) == (missing.status, missing.content)


def test_the_page_and_the_health_need_nobody(lab: LabVisitor) -> None:
    """The files of the page are the same for everybody and at each workspace, and the health tells nothing."""
    found = {path: lab.ask("nobody", "GET", f"/w/vision{path}").content for path in PAGE}

    assert found == {path: file.content for path, file in PAGE.items()}
    assert lab.ask("nobody", "GET", "/w/missing/main.js").status == 200
    assert lab.ask("nobody", "GET", "/").content == LAB_PAGE.content
    assert lab.ask("nobody", "GET", "/main.js").content == PAGE["/main.js"].content
    assert lab.ask("nobody", "GET", "/health", host="10.0.0.1").json == {"status": "ok"}


def test_the_page_knows_whether_its_reader_may_act(lab: LabVisitor) -> None:
    """The home says to each asker whether they may act."""
    answers = {one: lab.ask(one, "GET", "/w/vision/api/v1/home").json for one in ("reader", "writer", "owner")}

    assert {one: answer["can_act"] for one, answer in answers.items()} == {
        "reader": False,
        "writer": True,
        "owner": True,
    }


def test_a_link_tells_of_no_other_trial(lab: LabVisitor) -> None:
    """The home, as a link shows it, says neither how many trials there are nor where they lie."""
    lab.ask("reader", "GET", "/w/vision/api/v1/runs")  # which is answered once all is read

    of_link, of_reader = (lab.ask(one, "GET", "/w/vision/api/v1/home").json for one in ("link", "reader"))

    assert (of_link["num_trials"], of_reader["num_trials"]) == (1, 3)
    assert of_link["location"] == of_reader["location"] == "vision"
    assert "slots" in of_link["refuses"]
    assert not of_link["can_act"]


def test_a_reader_sees_what_a_writer_has_done(lab: LabVisitor) -> None:
    """A writer's label is in the records that a reader is shown next."""
    headers = {"x_core_sdk_action": "1", "content_type": "application/json"}

    done = lab.ask("writer", "POST", "/w/vision/api/v1/trials/1/actions/label", b'{"add": ["good"]}', **headers)

    assert done.status == 200
    assert lab.ask("reader", "GET", "/w/vision/api/v1/trials/1").json["trial"]["labels"] == ["good"]


def test_a_foreign_host_and_a_foreign_page_are_refused(lab: LabVisitor) -> None:
    """A request for another host, from another page or for a service worker is refused to everybody."""
    path = "/w/vision/api/v1/home"

    assert lab.ask("owner", "GET", path, host="evil.example").problem == "foreign_host"
    assert lab.ask("owner", "GET", path, origin="https://evil.example").problem == "foreign_origin"
    assert lab.ask("owner", "GET", path, service_worker="script").problem == "no_service_worker"


def test_a_key_of_the_page_ends_with_its_token(lab: LabVisitor) -> None:
    """The page's key allows what its token allows, and not longer."""
    key = lab.ask("reader", "GET", "/w/vision/api/v1/session").json["key"]
    lab.secrets["page"] = key
    before = lab.ask("page", "GET", "/w/vision/api/v1/runs").status
    token = lab.lab.people.read().find(lab.secrets["reader"], 0)
    assert token is not None

    lab.lab.people.revoke(token.id)

    assert before == 200
    assert lab.ask("page", "GET", "/w/vision/api/v1/runs").status == 401


def test_a_ticket_opens_files_for_its_asker_only(lab: LabVisitor) -> None:
    """A ticket stands for its asker where files are saved, and nowhere else."""
    ticket = lab.ask("reader", "GET", "/w/vision/api/v1/ticket").json["ticket"]
    archive = "/api/v1/experiments/1/code/archive"

    def asked(path: str, ticket: str = ticket) -> str:
        return lab.ask("nobody", "GET", f"{path}?ticket={ticket}").problem

    assert asked(f"/w/vision{archive}") not in REFUSALS
    assert asked("/w/vision/api/v1/trials/1") == "no_token"
    assert asked(f"/w/speech{archive}") == "no_such_workspace"
    assert asked(f"/w/vision{archive}", f"{ticket}0") == "no_token"
