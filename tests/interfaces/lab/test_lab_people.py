"""How people sign in to a lab, and what they and owners decide about tokens, links and members."""

from __future__ import annotations

import hashlib
import re
import stat
from http.cookies import SimpleCookie
from pathlib import Path

import msgspec
import pytest
from interfaces.lab.lab_visitor import DAY_S, HOST, PROXY, LabVisitor

from core_sdk._interfaces.lab.people import SECRET
from core_sdk._interfaces.lab.people_routes import COOKIE

ME = "/api/v1/me"
RUNS = "/w/vision/api/v1/runs"


def signed_in(lab: LabVisitor, secret: str) -> str:
    """Returns the cookie that a browser gets for a one-time link."""
    answer = lab.act("nobody", "/api/v1/session", invitation=secret)
    assert answer.status == 200, answer.content
    assert answer.json == {"key": ""}
    cookie = SimpleCookie(answer.headers["set-cookie"])[COOKIE]
    assert (cookie["secure"], cookie["httponly"], cookie["samesite"].lower(), cookie["path"]) == (
        True,
        True,
        "strict",
        "/",
    )
    assert not cookie["domain"]
    return f"{COOKIE}={cookie.value}"


def test_a_one_time_link_signs_in_once(lab: LabVisitor) -> None:
    """An owner's link makes its person a member and signs them in, once."""
    made = lab.act("owner", "/w/vision/api/v1/people/actions/invite", person="guest@lab", role="writer").json
    secret = made["address"].removeprefix(f"https://{HOST}/#invitation=")

    cookie = signed_in(lab, secret)
    again = lab.act("nobody", "/api/v1/session", invitation=secret)

    assert lab.ask("nobody", "GET", ME, cookie=cookie).json == {
        "person": "guest@lab",
        "workspaces": {"vision": "writer"},
    }
    assert (again.status, again.problem) == (401, "no_invitation")


def test_a_one_time_link_that_was_withdrawn_or_is_old_signs_nobody_in(lab: LabVisitor) -> None:
    """An invitation that was revoked or has expired makes no session, and none is a token."""
    withdrawn, made = lab.lab.people.issue("invitation", "guest", DAY_S, workspace="vision", role="reader")
    lab.lab.people.revoke(made.id)
    old, _ = lab.lab.people.issue("invitation", "guest", 0.0, workspace="vision", role="reader")

    for secret in (withdrawn, old, "", "lab_", lab.secrets["owner"]):
        assert lab.act("nobody", "/api/v1/session", invitation=secret).status == 401
    assert lab.ask("invited", "GET", ME).status == 401
    assert "guest" not in lab.lab.people.read().members["vision"]


def test_an_invitation_takes_no_rights_away(lab: LabVisitor) -> None:
    """An owner who opens a link for a reader stays an owner."""
    secret, _ = lab.lab.people.issue("invitation", "owner", DAY_S, workspace="vision", role="reader")

    signed_in(lab, secret)

    assert lab.lab.people.read().members["vision"]["owner"] == "owner"


def test_a_cookie_is_of_use_to_the_lab_s_own_page_only(lab: LabVisitor) -> None:
    """What another site causes a browser to send is refused, and so is a change without the header of the page."""
    cookie = signed_in(lab, lab.secrets["invited"])

    assert lab.ask("nobody", "GET", RUNS, cookie=cookie, sec_fetch_site="same-origin").status == 200
    assert lab.ask("nobody", "GET", RUNS, cookie=cookie, sec_fetch_site="cross-site").problem == "foreign_origin"
    assert lab.ask("nobody", "GET", RUNS, cookie=cookie, sec_fetch_site="same-site").problem == "foreign_origin"
    for path in ("/api/v1/session", "/w/vision/api/v1/session"):
        assert lab.ask("nobody", "GET", path, cookie=cookie).json == {"key": ""}  # no script gets its worth
    posted = lab.ask("nobody", "POST", "/w/vision/api/v1/trials/1/actions/label", cookie=cookie)
    assert posted.problem == "no_action_header"


def test_signing_out_ends_the_session(lab: LabVisitor) -> None:
    """The cookie of somebody who has signed out is refused, also if a copy of it is kept."""
    cookie = signed_in(lab, lab.secrets["invited"])

    answer = lab.ask("nobody", "POST", "/api/v1/session/actions/end", x_core_sdk_action="1", cookie=cookie)

    assert answer.status == 200
    assert lab.ask("nobody", "GET", ME, cookie=cookie).status == 401


def test_a_token_allows_at_most_what_its_maker_may_do(lab: LabVisitor) -> None:
    """Nobody makes a token for more than they may do, nor by a token for more than that allows."""
    create = "/api/v1/tokens/actions/create"
    made = lab.act("writer", create, workspace="vision", role="reader", days=1, label="ci")
    lab.secrets["ci"] = made.json["token"]

    assert lab.ask("ci", "GET", RUNS).status == 200
    assert lab.act("ci", "/w/vision/api/v1/trials/1/actions/label", add=["x"]).problem == "not_allowed"
    assert lab.act("ci", create, workspace="vision", role="writer").problem == "not_allowed"
    assert lab.act("writer", create, workspace="vision", role="owner").problem == "not_allowed"
    assert lab.act("writer", create, workspace="speech", role="reader").problem == "no_such_workspace"
    assert lab.act("writer", create, workspace="vision", role="reader", days=1000).status == 400


def test_a_token_ends_with_the_one_that_has_made_it(lab: LabVisitor) -> None:
    """Whoever revokes a token ends what was made by it."""
    create = "/api/v1/tokens/actions/create"
    first = lab.act("writer", create, workspace="vision", role="writer").json
    lab.secrets["first"] = first["token"]
    lab.secrets["second"] = lab.act("first", create, workspace="vision").json["token"]

    before = lab.ask("second", "GET", RUNS).status
    lab.act("writer", f"/api/v1/tokens/{first['id']}/actions/revoke")

    assert before == 200
    assert {lab.ask(one, "GET", RUNS).status for one in ("first", "second")} == {401}


def test_nobody_revokes_what_is_of_others(lab: LabVisitor) -> None:
    """A token of somebody else, or of another workspace, cannot be revoked."""
    of_reader = lab.lab.people.read().find(lab.secrets["reader"], 0)
    of_stranger = lab.lab.people.read().find(lab.secrets["stranger"], 0)
    assert of_reader is not None
    assert of_stranger is not None

    assert lab.act("writer", f"/api/v1/tokens/{of_reader.id}/actions/revoke").problem == "no_such_token"
    path = "/w/vision/api/v1/people/credentials"
    assert lab.act("owner", f"{path}/{of_stranger.id}/actions/revoke").problem == "no_such_token"
    assert lab.act("owner", f"{path}/{of_reader.id}/actions/revoke").status == 200
    assert lab.ask("reader", "GET", RUNS).status == 401


def test_whoever_leaves_a_workspace_has_no_token_there(lab: LabVisitor) -> None:
    """A member who is removed or made a reader loses it with all tokens and links at once."""
    path = "/w/vision/api/v1/people/actions/set"
    label = "/w/vision/api/v1/trials/1/actions/label"

    lab.act("owner", path, person="writer", role="reader")
    as_reader = lab.act("writer", label, add=["x"]).problem
    lab.act("owner", path, person="writer", role=None)

    assert as_reader == "not_allowed"
    assert lab.ask("writer", "GET", RUNS).problem == "no_such_workspace"
    assert lab.ask("link", "GET", "/w/vision/api/v1/trials/1").problem == "no_such_workspace"
    assert lab.act("owner", path, person="owner", role=None).problem == "bad_value"  # nobody would be left


def test_a_link_to_a_trial_can_be_revoked(lab: LabVisitor) -> None:
    """A link opens its trial for whoever has it, until it is revoked."""
    made = lab.act("writer", "/w/vision/api/v1/links/actions/create", trial_id=2, days=1).json
    found = re.fullmatch(rf"https://{HOST}/w/vision/#token=({SECRET})/trials/2", made["address"])
    assert found is not None
    lab.secrets["guest"] = found[1]

    before = lab.ask("guest", "GET", "/w/vision/api/v1/trials/2").status
    lab.act("writer", f"/w/vision/api/v1/links/{made['id']}/actions/revoke")

    assert before == 200
    assert lab.ask("guest", "GET", "/w/vision/api/v1/trials/2").status == 401
    assert lab.act("writer", "/w/vision/api/v1/links/actions/create", trial_id=99).status == 404


def test_a_link_opens_a_trial_or_a_report(lab: LabVisitor) -> None:
    """The address of a link leads to the one thing that it was made for, which must be there."""
    path = "/w/vision/api/v1/links/actions/create"

    made = lab.act("writer", path, experiment_id=1, days=1).json

    assert re.fullmatch(rf"https://{HOST}/w/vision/#token={SECRET}/experiments/1/report", made["address"])
    assert lab.act("writer", path, experiment_id=99).status == 404
    assert lab.act("writer", path).problem == "bad_value"
    assert lab.act("writer", path, trial_id=1, experiment_id=1).problem == "bad_value"
    assert lab.act("reader", path, experiment_id=1).problem == "not_allowed"


def test_a_named_proxy_says_who_asks(lab: LabVisitor) -> None:
    """The header of a named proxy is believed, and ignored from everybody else."""
    assert lab.ask("nobody", "GET", ME, client=PROXY, x_forwarded_user="reader").json["workspaces"] == {
        "vision": "reader"
    }
    assert lab.ask("nobody", "GET", RUNS, client=PROXY, x_forwarded_user="reader").status == 200
    assert lab.ask("nobody", "GET", RUNS, client="10.0.1.7", x_forwarded_user="reader").status == 401
    assert lab.ask("nobody", "GET", RUNS, client=PROXY).status == 401
    assert lab.ask("nobody", "GET", RUNS, client=PROXY, x_forwarded_user="somebody").problem == "no_such_workspace"
    assert (
        lab.ask("revoked", "GET", RUNS, client=PROXY, x_forwarded_user="reader").status == 401
    )  # a token that is wrong is no header


def test_secrets_are_kept_nowhere(lab: LabVisitor) -> None:
    """The folder holds the SHA-256 of each secret, and no secret, in files for the server's user only."""
    lab.act("owner", "/w/vision/api/v1/people/actions/invite", person="guest", role="reader")
    lab.act("writer", f"/w/vision/api/v1/links/{lab.secrets['owner']}/actions/revoke")

    contents = {path: path.read_bytes() for path in lab.lab.root.iterdir() if path.is_file()}

    for secret in lab.secrets.values():
        assert not [path for path, content in contents.items() if secret.encode() in content]
    kept = msgspec.json.decode(contents[lab.lab.root / "people.json"])["credentials"]
    assert hashlib.sha256(lab.secrets["owner"].encode()).hexdigest() in kept
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in contents} == {0}


def test_the_log_says_who_did_what(lab: LabVisitor) -> None:
    """Each change, each sign-in and each refusal of a change is a line, and a question is none."""
    lab.ask("reader", "GET", RUNS)
    lab.act("writer", "/w/vision/api/v1/trials/1/actions/label", add=["x"])
    lab.act("reader", "/w/vision/api/v1/trials/1/actions/delete")
    signed_in(lab, lab.secrets["invited"])

    deeds = [msgspec.json.decode(line) for line in lab.lab.log.read_bytes().splitlines()]

    assert [(one["person"], one["what"], one["status"]) for one in deeds] == [
        ("writer", "POST /w/vision/api/v1/trials/1/actions/label", 200),
        ("reader", "POST /w/vision/api/v1/trials/1/actions/delete", 403),
        ("guest", "POST /api/v1/session", 200),
    ]


def test_saved_views_and_notes_say_whose_they_are(lab: LabVisitor) -> None:
    """The lab knows who has saved a view and who has written a note, whatever they say themselves."""
    api = "/w/vision/api/v1"
    lab.act("writer", f"{api}/preferences/actions/keep", save_view={"name": "best", "query": {}, "author": "owner"})
    lab.act("owner", f"{api}/trials/1/actions/change", notes="Look at this.")
    claimed = lab.act("writer", f"{api}/trials/1/actions/change", notes="Mine.", by="owner")

    (view,) = lab.ask("reader", "GET", f"{api}/preferences").json["views"]
    trial = lab.ask("reader", "GET", f"{api}/trials/1").json["trial"]

    assert view["author"] == "writer"
    assert (trial["notes"], trial["notes_author"]) == ("Look at this.", "owner")
    assert claimed.status == 400


def test_the_figures_count_by_route(lab: LabVisitor) -> None:
    """Prometheus' token reads the figures, in which no address, no name and no id stands."""
    lab.ask("reader", "GET", "/w/vision/api/v1/trials/1")
    lab.ask("reader", "GET", "/w/vision/api/v1/trials/2")
    lab.ask("nobody", "GET", "/w/vision/api/v1/trials/3")

    text = lab.ask("prometheus", "GET", "/metrics").content.decode()

    assert 'core_sdk_requests_total{route="/api/v1/trials/{trial_id}",method="GET",status="200"} 2' in text
    assert 'core_sdk_requests_total{route="refused",method="GET",status="401"} 1' in text
    assert "vision" not in text
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) \w+ .+|\w+(\{(\w+="[^"\n]*",?)+\})? -?[0-9.e+-]+', line), line


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "-a", "a" * 64, "ä"])
def test_a_workspace_has_a_name_that_is_a_folder(lab: LabVisitor, tmp_path: Path, name: str) -> None:
    """Nothing of an address is a path: a name that could be one is refused."""
    with pytest.raises(ValueError, match="small letters"):
        lab.lab.add_workspace(name)

    assert not lab.lab.has_workspace(name)
