"""The security of the page's server: a test for each rule of SECURITY.md that concerns it."""

from __future__ import annotations

import ast
import io
import itertools
import os
import socket
import stat
import tarfile
import time
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, get_args, get_origin

import msgspec
import pytest
from home.journals import new_trial, record
from interfaces.server.conftest import HOSTILE
from interfaces.server.visitor import HOST, OWN_NAME, PAGE, PORT, TOKEN, Visitor, target_of
from starlette.datastructures import Headers

import core_sdk._interfaces.server
from core_sdk._home import Home, TrialFolder
from core_sdk._interfaces.server.route import Route
from core_sdk._interfaces.server.routes.table import ROUTES
from core_sdk._interfaces.server.security import LEAST_TOKEN_LENGTH, TICKET_S, TokenGate
from core_sdk._interfaces.server.serving import check_exposure, listen

SERVER = Path(core_sdk._interfaces.server.__file__).parent
OWN_HOST = f"{OWN_NAME}:{PORT}"
FILE = "/checkpoints/c1/file"
ADDRESSES = [
    "/",
    "/main.js",
    "/nothing",
    "/api/v1/events",
    "/api/v1/session",
    "/api/v1/ticket",
    "/api/v1/openapi.json",
    "/api/v1/nothing",
]
EVERY_ADDRESS = ADDRESSES + [f"/api/v1{route.path}" for route in ROUTES]


def url_of(route: Route) -> str:
    ids = {"{trial_id}": "1", "{experiment_id}": "1", "{storage_id}": "c1", "{model_id}": "1", "{version}": "1"}
    return "/api/v1" + "/".join(ids.get(part, part) for part in route.path.split("/"))


METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"]


def test_nobody_is_answered_without_the_token(visitor: Visitor) -> None:
    """No route answers without the token, whatever the method or the place of a wrong token."""
    wrong = [{}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}, {"authorization": f"Basic {TOKEN}"}]
    wrong += [{"cookie": f"core-sdk-{PORT}={TOKEN}"}, {"host": OWN_HOST}]
    for method, address, headers in itertools.product(METHODS, EVERY_ADDRESS, wrong):
        if address in PAGE and method in ("GET", "HEAD"):
            continue
        answer = visitor.send(method, f"{address}?token={TOKEN}", headers=headers, with_token=False)

        assert answer.status == 401, (method, address, headers)
        assert TOKEN.encode() not in answer.content
        assert "set-cookie" not in answer.headers


def test_only_files_of_the_page_take_no_token(visitor: Visitor) -> None:
    """Only the page's files need no token, and the first of them has the status 401."""
    found = {address: visitor.send("GET", address, with_token=False) for address in PAGE}

    assert {address: answer.content for address, answer in found.items()} == {
        address: file.content for address, file in PAGE.items()
    }
    assert [found[address].status for address in ("/", "/main.js")] == [401, 200]
    assert visitor.get("/").status == 200


def test_the_page_gets_a_key_that_ends_with_the_server(visitor: Visitor, home: Home) -> None:
    """The page's session key is as good as the token and ends with the server."""
    key = visitor.question("/session")["key"]
    later = Visitor(home)

    answers = [
        each.send("GET", "/api/v1/home", headers={"authorization": f"Bearer {key}"}, with_token=False)
        for each in (visitor, later)
    ]
    later.close()

    assert key != TOKEN
    assert [answer.status for answer in answers] == [200, 401]


def test_a_ticket_stands_for_the_token_in_the_address_of_a_file(
    visitor: Visitor, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ticket gives access to one kind of file for a short time at this server only."""
    ticket = visitor.question("/ticket")["ticket"]
    later = Visitor(home)
    end, _, signature = ticket.partition("-")

    def status(given: str, method: str = "GET", path: str = FILE, of: Visitor = visitor) -> int:
        headers = {"x_core_sdk_action": "1"}
        target = target_of(path, name="x", ticket=given)
        return of.send(method, target, headers=headers, with_token=False).status

    assert status(ticket) == 404  # asked for, and not there
    assert status(ticket, of=later) == 401
    assert {status(ticket, path=path) for path in ("/session", "/ticket", "/trials/1", "/runs")} == {401}
    assert {status(ticket, "POST", path) for path in (FILE, "/trials/1/actions/archive")} == {401}
    for wrong in ("", "-", end, f"{int(end) + 1}-{signature}", f"{end}-", f"{end}-{signature[1:]}", "9" * 400, "é-é"):
        assert status(wrong) == 401, wrong
    passed_s = time.monotonic() + TICKET_S + 1
    monkeypatch.setattr(time, "monotonic", lambda: passed_s)
    assert status(ticket) == 401
    later.close()


def test_the_name_of_the_server_is_told_to_nobody(visitor: Visitor) -> None:
    """No answer reveals the server's private host name."""
    answers = [visitor.get(address, host=host) for address in EVERY_ADDRESS[:3] for host in ("evil.example", HOST, "")]

    assert not [answer for answer in answers if OWN_NAME in f"{answer.headers} {answer.content!r}"]
    assert visitor.get("/api/v1/home", host=OWN_HOST, origin=f"http://{OWN_HOST}").status == 200


@pytest.mark.parametrize(("port", "host"), [(80, OWN_NAME), (80, f"{OWN_NAME}:80"), (8650, f"{OWN_NAME}:8650")])
def test_a_browser_leaves_out_the_usual_port(port: int, host: str) -> None:
    """The usual port 80 may be left out of the host."""
    gate = TokenGate(TOKEN, port, [], OWN_NAME)
    headers = Headers({"host": host})

    gate.check_address(headers)

    assert gate.has_own_name(headers)


def test_no_service_worker_is_served(visitor: Visitor) -> None:
    """A service worker's script is never served, so that a foreign one ends."""
    for host, with_token in itertools.product((HOST, OWN_HOST, "evil.example"), (True, False)):
        headers = {"service_worker": "script", "host": host}
        answer = visitor.send("GET", "/main.js", headers=headers, with_token=with_token)

        assert (answer.status, answer.problem) == (403, "no_service_worker")
        assert answer.headers["clear-site-data"] == '"storage"'
    assert "worker-src 'none'" in visitor.get("/").headers["content-security-policy"]
    assert "clear-site-data" not in visitor.get("/").headers


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org", "::"])
def test_another_address_than_loopback_demands_a_token_of_ones_own(host: str) -> None:
    """Listening on another address than loopback requires the user's own token."""
    with pytest.raises(ValueError, match=r"logs, configurations and checkpoints.*not encrypted"):
        check_exposure(host, None)
    with pytest.raises(ValueError, match=str(LEAST_TOKEN_LENGTH)):
        check_exposure(host, "short")

    check_exposure(host, TOKEN)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.9.10"])
def test_loopback_needs_none(host: str) -> None:
    """On loopback no token of the user's own is required."""
    check_exposure(host, None)


def test_the_server_listens_on_loopback_only() -> None:
    """The server listens on loopback only."""
    with ExitStack() as stack:
        listening = [stack.enter_context(each) for each in listen("127.0.0.1", 0)]
        stranger = stack.enter_context(socket.socket())
        port = listening[0].getsockname()[1]
        assert [each.getsockname()[:2] for each in listening] in (
            [("127.0.0.1", port), ("::1", port)],
            [("127.0.0.1", port)],
        )
        # The whole of 127/8 is this machine: the next address is another one.
        with pytest.raises(ConnectionRefusedError):
            stranger.connect(("127.0.0.2", port))


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1.:{PORT}", f"localhost.:{PORT}", "127.0.0.1:80",
        f"127.0.0.1:{PORT}@evil.example", f"evil.example#127.0.0.1:{PORT}", f"0.0.0.0:{PORT}", f"2130706433:{PORT}",
        f"127.1:{PORT}", f"[::ffff:127.0.0.1]:{PORT}", f"other.localhost:{PORT}", f":{PORT}",
        f"127.0.0.1:{PORT}, evil.example", f"127.0.0.1:0{PORT}", "",
    ],
)  # fmt: skip
def test_a_name_that_was_rebound_to_us_is_refused(visitor: Visitor, host: str) -> None:
    """A request with another host name is refused, which stops DNS rebinding."""
    headers = {"host": host, "x_forwarded_host": HOST}

    for address in ("/", "/main.js", "/api/v1/home"):
        answer = visitor.send("GET", address, headers=headers)
        assert (answer.status, answer.problem) == (403, "foreign_host"), address


def test_two_hosts_are_none(visitor: Visitor) -> None:
    """A request with two Host headers is refused."""
    hosts = [(b"host", HOST.encode()), (b"host", b"evil.example")]

    answer = visitor.send_raw("GET", "/api/v1/home", [*hosts, (b"authorization", f"Bearer {TOKEN}".encode())])

    assert answer.problem == "foreign_host"


@pytest.mark.parametrize("host", [HOST, f"LOCALHOST:{PORT}", f"[::1]:{PORT}"])
def test_our_own_names_are_answered(visitor: Visitor, host: str) -> None:
    """The server's own names with its port are accepted."""
    assert visitor.get("/api/v1/home", host=host, origin=f"http://{host}").status == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", f"http://localhost:{PORT}", f"http://127.0.0.1:{PORT + 1}"]
)  # fmt: skip
def test_another_web_page_is_refused(visitor: Visitor, origin: str) -> None:
    """A request with a foreign Origin is refused, and no answer allows reading."""
    for method in ("GET", "POST", "OPTIONS"):
        answer = visitor.send(method, "/api/v1/home", headers={"origin": origin, "x_core_sdk_action": "1"})
        assert (answer.status, answer.problem) == (403, "foreign_origin")
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_no_action_without_its_header(visitor: Visitor, home: Home) -> None:
    """An action without its header is refused, since a form cannot send it."""
    plain = {"content_type": "text/plain"}
    for route in ROUTES:
        if route.method == "POST":
            form = visitor.send("POST", url_of(route), headers=plain, body=b"{}")
            link = visitor.send("GET", url_of(route), headers=plain)

            assert (form.status, form.problem) == (403, "no_action_header")
            assert (link.status, link.problem) == (405, "method_not_allowed")
    assert home.trial_ids() == [1, 2, 3]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "OPTIONS"])
def test_no_route_has_another_method(visitor: Visitor, method: str) -> None:
    """No route accepts another method."""
    for route in ROUTES:
        assert visitor.send(method, url_of(route), headers={"x_core_sdk_action": "1"}).status == 405


def body_for(route: Route) -> dict[str, object]:
    """Returns the smallest body that an action takes: it has a text, texts or a number for what must be given."""
    fields = msgspec.structs.fields(route.hints["body"]) if "body" in route.hints else ()
    return {one.name: value_for(one.type) for one in fields if one.required}


def value_for(kind: object) -> object:
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if plain is float:
        return 1.0
    return ["x"] if get_origin(kind) is Collection else "x"


def test_every_action_is_a_post_and_needs_a_server_that_acts(home: Home, trials: list[TrialFolder]) -> None:
    """A read-only server refuses every action."""
    visitor = Visitor(home, can_act=False)
    actions = [route for route in ROUTES if "/actions/" in route.path and not route.path.endswith("/verify")]

    answers = [visitor.act(url_of(route).removeprefix("/api/v1"), body_for(route)) for route in actions]
    visitor.close()

    assert {route.path for route in ROUTES if route.method == "POST"} >= {route.path for route in actions}
    assert {answer.problem for answer in answers} == {"read_only"}
    assert home.trial_ids() == [1, 2, 3]


def test_every_answer_has_the_headers_that_confine_it(visitor: Visitor) -> None:
    """Every answer, also a refusal, has the protecting headers."""
    addresses = [address.replace("{", "").replace("}", "") for address in EVERY_ADDRESS]
    for address, with_token in itertools.product(addresses, (True, False)):
        if address.endswith("/events") and with_token:
            continue  # a stream without an end
        answer = visitor.send("GET", address, with_token=with_token)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "*" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_nothing_of_a_run_is_a_page(visitor: Visitor, home: Home, trials: list[TrialFolder]) -> None:
    """Names, labels, logs and notes with markup are JSON, and files of checkpoints are attachments."""
    home.trial(2).log_path(1).write_text(HOSTILE)

    answers = [visitor.get(target_of(path)) for path in ("/trials/2", "/trials/2/logs", "/runs", "/experiments")]

    assert {answer.headers["content-type"] for answer in answers} == {"application/json"}
    assert answers[1].json["page"]["lines"][0]["text"] == HOSTILE


def test_a_file_of_a_checkpoint_is_an_attachment(visitor: Visitor, home: Home) -> None:
    """A checkpoint's file is sent as an attachment, and other files are not found."""
    from core_sdk._ground.records import CheckpointStored
    from core_sdk._home.storage import open_storage
    from core_sdk._home.storage._shard import unite

    storage = open_storage(None, home.root / "checkpoints")
    with storage.stage("one") as staging:
        Path(staging.path, "page.html").write_text("<script>alert(1)</script>")
        staging.commit(unite([staging.seal()]), {})
    storage.close()
    folder = new_trial(home)
    url = (home.root / "checkpoints").as_uri()
    record(
        folder,
        CheckpointStored(
            time=0.0, storage_id="one", storage=url, steps_completed=1, metadata={}, resources={"page.html": 25}
        ),
    )
    visitor.shared.forget()

    answer = visitor.get(target_of("/checkpoints/one/file", name="page.html"))
    outside = visitor.get(target_of("/checkpoints/one/file", name="../../home.json"))

    assert answer.content == b"<script>alert(1)</script>"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert (outside.status, outside.problem) == (404, "no_such_file")


def test_no_module_of_the_server_unpickles_or_evaluates() -> None:
    """No module of the server uses pickle, eval, YAML, a shell or outgoing requests."""
    banned = {"pickle", "marshal", "shelve", "cloudpickle", "yaml", "subprocess", "requests", "urllib.request", "httpx"}
    calls = {"eval", "exec", "compile", "__import__"}
    for file in SERVER.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                assert not {alias.name for alias in node.names} & banned, file
            elif isinstance(node, ast.ImportFrom):
                assert node.module not in banned, file
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in calls, file


PATHS = [
    "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "....//....//etc/passwd", "/etc/passwd",
    "//etc/passwd", "..\\..\\etc\\passwd", "%252e%252e%252fetc%252fpasswd", "index.html%00.js", "./main.js", "main.js/",
    "MAIN.JS", "main.js/..", "..;/etc/passwd", "file:///etc/passwd", "~root/.ssh/id_rsa", "%c0%ae%c0%ae/etc/passwd",
    "page/../app.py", "../security.py", "__init__.py", "app.py", "tracker.db", "home.json", "runs/1/trial.json",
]  # fmt: skip


def test_no_address_is_a_path(visitor: Visitor) -> None:
    """Files of the page are keys; ids are numbers, or are looked up in the records."""
    for path, before in itertools.product(PATHS, ("/", "/api/v1/", "/api/v1/trials/", "/api/v1/checkpoints/")):
        address = before + path
        answer = visitor.get(address)
        assert answer.status in (400, 404), address
        assert b"root:" not in answer.content


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "link", "..", ".", "", "a/../../b"])
def test_code_is_read_by_its_names_in_the_archive(visitor: Visitor, home: Home, name: str) -> None:
    """An archive with a link or a name that leads outside gives nothing of outside."""
    from core_sdk._ground.records import SubmissionRecord

    folder = home.new_experiment("submitted")
    with folder.edit() as experiment:
        experiment.is_submitted = True
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    home.code_archive("0" * 64).parent.mkdir()
    home.code_archive("0" * 64).write_bytes(content.getvalue())
    folder.write_submission(SubmissionRecord(code="0" * 64, cwd="/", environment={}))

    answer = visitor.get(target_of(f"/experiments/{folder.experiment_id}/code/file", name=name))

    assert (answer.status, answer.problem) == (404, "no_such_file")


def test_the_server_writes_nothing_that_others_can_read(visitor: Visitor, home: Home) -> None:
    """Files that the server writes are private, whatever the umask."""
    before = os.umask(0)
    try:
        visitor.question("/runs")
        visitor.act("/trials/1/actions/label", {"add": ["x"]})
        visitor.question("/runs")
    finally:
        os.umask(before)

    written = [path for path in home.root.rglob("*") if path.name.startswith(("tracker.db", "changes"))]
    assert written
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in written} == {0}


@pytest.mark.parametrize(
    "text",
    [
        "' OR 1=1 --", "1; DROP TABLE trial", "lr>0.1; --", "id=1 UNION SELECT * FROM trial",
        "%27", "\x00",
        "((((((", "not " * 200, "id IN (SELECT 1)", "${jndi:ldap://x}", "{{7*7}}", "__class__=1",
        "id=1\r\nSet-Cookie: a=b",
    ],
)  # fmt: skip
def test_conditions_are_parsed_and_never_become_sql(visitor: Visitor, text: str) -> None:
    """Conditions never become SQL, and invalid ones are refused."""
    for query in ({"where": text}, {"sort": text}, {"columns": text}):
        answer = visitor.get(target_of("/runs", **query))
        assert answer.status in (200, 400)
        assert "set-cookie" not in answer.headers

    assert visitor.question("/runs")["num_found"] == 3


def test_conditions_nested_without_end_are_refused(visitor: Visitor) -> None:
    """Deeply nested conditions are refused without exhausting the stack."""
    for text in ("(" * 990 + "id=1", "not " * 249 + "id=1", "(" * 400 + "id=1" + ")" * 400):
        assert visitor.get(target_of("/runs", where=text)).status in (200, 400)


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/runs", {"limit": 10_001}),
        ("/runs", {"where": "x" * 1001}), ("/runs", {"columns": ["x"] * 1001}),
        ("/trials/1/metrics", {"buckets": 4001}), ("/trials/1/metrics", {"first": 2**63}),
        ("/trials/1/logs", {"limit": 5001}), ("/trials/1/logs", {"first": 2**63}),
        ("/trials/" + "9" * 5000, {}), ("/experiments/1/curves", {"top": 201}),
        ("/checkpoints/" + "x" * 201, {}),
    ],
)  # fmt: skip
def test_what_would_cost_too_much_is_refused(visitor: Visitor, path: str, query: dict[str, object]) -> None:
    """Requests above the limits are refused."""
    assert visitor.get(target_of(path, **query)).status == 400


def test_a_body_has_a_limit(visitor: Visitor) -> None:
    """A request body above the limit is refused."""
    assert visitor.act("/experiments/1/actions/change", {"notes": "x" * 70_000}).status == 413
    assert visitor.act("/experiments/1/actions/change", {"notes": "x" * 60_000}).status == 200


def test_the_page_fetches_nothing_from_elsewhere() -> None:
    """The page's own files refer to no other host."""
    own = [
        path
        for path in (SERVER / "page").rglob("*")
        if path.suffix in (".html", ".js", ".css") and "vendor" not in path.parts
    ]

    assert own
    for path in own:
        text = path.read_text()
        for scheme in ("https://", "http://", 'src="//', "url(//"):
            allowed = text.count("http://www.w3.org/")  # the name of SVG, which is no address
            assert text.count(scheme) == (allowed if scheme == "http://" else 0), path


def test_a_server_without_a_home_is_empty(home: Home) -> None:
    """A missing home is served as empty and is not created."""
    visitor = Visitor(home)

    assert visitor.question("/runs")["num_trials"] == 0
    visitor.close()
    assert not home.root.exists()
