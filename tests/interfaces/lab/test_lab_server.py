"""A lab's server as a process: what it does when tokens are revoked, when it is told to end, killed and copied."""

from __future__ import annotations

import contextlib
import itertools
import signal
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest
from cryptography import x509
from home.journals import new_trial, record, report
from interfaces.lab.lab_server import DAY_S, TIMEOUT_S, new_lab, serving_lab, write_certificate
from processes import wait_for

from core_sdk._ground.records import CheckpointStored
from core_sdk._home import Home, open_view
from core_sdk._home.storage import DirectoryStorage
from core_sdk._home.storage._shard import unite
from core_sdk._home.storages import storage_name
from core_sdk._interfaces.lab.backup import back_up, restore
from core_sdk._interfaces.lab.door import MOST_REQUESTS
from core_sdk._interfaces.lab.folder import Lab
from core_sdk._interfaces.lab.site import plan_site
from core_sdk._workspace.connection import WorkspaceConnection
from core_sdk._workspace.pushing import Pusher
from core_sdk.errors import CoreSDKError, WorkspaceRefusedError

API = "/w/vision/api/v1"


def labels_of(lab: Lab) -> set[str]:
    with open_view(lab.home("vision")) as view:
        return set(view.trials()[0].labels)


def add_trial(home: Home) -> None:
    record(new_trial(home), report(1, loss=0.5))


def test_an_open_stream_ends_when_its_token_is_revoked(tmp_path: Path) -> None:
    """A page that is open hears no more once the token with which it was opened is revoked."""
    lab, token = new_lab(tmp_path / "lab")
    with serving_lab(lab, token) as server:
        guest, made = lab.people.issue("token", "ada", DAY_S, workspace="vision", role="reader")
        stream = server.get(f"{API}/events", guest, stream=True)
        lines = stream.iter_lines()
        assert next(lines) == b"retry: 1000"

        lab.people.revoke(made.id)
        rest = list(lines)

        assert b"event: hello" in rest
        assert server.get(f"{API}/events", guest).status_code == 401
        assert server.get(f"{API}/runs").status_code == 200


def test_one_person_has_a_bounded_number_of_open_pages(tmp_path: Path) -> None:
    """Whoever opens too many streams is refused further ones, and others are not."""
    lab, token = new_lab(tmp_path / "lab")
    lab.people.set_role("vision", "bob", "reader")
    of_bob, _ = lab.people.issue("token", "bob", DAY_S, workspace="vision")
    with serving_lab(lab, token) as server, contextlib.ExitStack() as stack:
        streams = [
            stack.enter_context(server.get(f"{API}/events", stream=True)).iter_lines() for _ in range(MOST_REQUESTS)
        ]
        assert {next(one) for one in streams} == {b"retry: 1000"}

        refused = server.get(f"{API}/runs")

        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert server.get(f"{API}/runs", of_bob).status_code == 200


def test_a_server_that_is_told_to_end_ends_its_streams(tmp_path: Path) -> None:
    """SIGTERM ends pages that are open, and then the server."""
    lab, token = new_lab(tmp_path / "lab")
    with serving_lab(lab, token) as server:
        stream = server.get(f"{API}/events", stream=True)
        lines = stream.iter_lines()
        next(lines)

        server.process.send_signal(signal.SIGTERM)
        rest = list(lines)

        assert b"event: hello" in rest
        assert server.process.wait(TIMEOUT_S) in (0, -signal.SIGTERM)
        uses = lab.last_uses.read_bytes()
        assert str(int(time.time()))[:6].encode() in uses


def test_a_killed_server_has_lost_nothing_that_it_has_acknowledged(tmp_path: Path) -> None:
    """After kill -9 in the middle of many actions, the records have each one that was answered."""
    lab, token = new_lab(tmp_path / "lab")
    add_trial(lab.home("vision"))
    acknowledged: list[str] = []
    with serving_lab(lab, token) as server:

        def act(name: int) -> None:
            for number in itertools.count():
                label = f"l{name}-{number}"
                try:
                    if server.act(f"{API}/trials/1/actions/label", {"add": [label]}).status_code != 200:
                        return
                except OSError:
                    return
                acknowledged.append(label)

        threads = [threading.Thread(target=act, args=[name]) for name in range(4)]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(acknowledged) > 40, TIMEOUT_S)
        server.process.kill()
        for thread in threads:
            thread.join(TIMEOUT_S)

    assert set(acknowledged) <= labels_of(lab)


def test_a_backup_of_a_server_that_runs_has_all_that_was_acknowledged(tmp_path: Path) -> None:
    """What was answered before a backup began is in the lab that is restored, and its tokens are valid."""
    lab, token = new_lab(tmp_path / "lab")
    add_trial(lab.home("vision"))
    ended = threading.Event()
    acknowledged: list[str] = []
    with serving_lab(lab, token) as server:

        def act() -> None:
            for number in itertools.count():
                if ended.is_set():
                    return
                server.act(f"{API}/trials/1/actions/label", {"add": [f"l{number}"]}).raise_for_status()
                acknowledged.append(f"l{number}")

        thread = threading.Thread(target=act)
        thread.start()
        wait_for(lambda: len(acknowledged) > 10, TIMEOUT_S)
        before = set(acknowledged)
        back_up(lab, tmp_path / "backup.tar")
        ended.set()
        thread.join(TIMEOUT_S)

    restored = restore(tmp_path / "backup.tar", tmp_path / "restored")

    assert not list(restored.root.rglob("tracker.db*"))
    assert before <= labels_of(restored)
    assert restored.people.read().find(token, time.time()) is not None
    assert (tmp_path / "backup.tar").stat().st_mode & 0o077 == 0


def test_a_damaged_archive_is_not_restored(tmp_path: Path) -> None:
    """An archive that is cut off, or is none, leaves no folder."""
    lab, _ = new_lab(tmp_path / "lab")
    back_up(lab, tmp_path / "backup.tar")
    content = (tmp_path / "backup.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(content[: len(content) // 2 - 100])
    (tmp_path / "none.tar").write_bytes(b"no archive")

    for name in ("cut.tar", "none.tar"):
        with pytest.raises(CoreSDKError):
            restore(tmp_path / name, tmp_path / "restored")
    with pytest.raises(CoreSDKError, match="not an empty folder"):
        restore(tmp_path / "backup.tar", lab.root)

    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["lab"]


def served_serial(port: int) -> int:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as plain, context.wrap_socket(plain) as wrapped:
        content = wrapped.getpeercert(binary_form=True)
    assert content is not None
    return x509.load_der_x509_certificate(content).serial_number


def test_a_renewed_certificate_is_read_without_a_restart(tmp_path: Path) -> None:
    """SIGHUP lets the server of https use the certificate that lies there now."""
    lab, token = new_lab(tmp_path / "lab")
    files = write_certificate(tmp_path, 1)
    with serving_lab(lab, token, *files) as server:
        port = int(server.url.rpartition(":")[2])
        first = served_serial(port)
        write_certificate(tmp_path, 2)

        server.process.send_signal(signal.SIGHUP)

        assert server.url.startswith("https://")
        assert first == 1
        wait_for(lambda: served_serial(port) == 2, TIMEOUT_S)


def test_no_secret_is_in_what_the_server_prints(tmp_path: Path) -> None:
    """Tokens in wrong places are in no line of the server's output, and in no file of the lab."""
    lab, token = new_lab(tmp_path / "lab")
    with serving_lab(lab, token) as server:
        for path in (f"{API}/runs?token={token}", f"/{token}", f"/w/vision/{token}", f"{API}/trials/{token}"):
            server.get(path)
            server.act(path, {"token": token})

        server.process.send_signal(signal.SIGTERM)
        output, errors = server.process.communicate(timeout=TIMEOUT_S)

    assert token not in output + errors
    assert not [path for path in lab.root.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "lab.example.org"])
def test_nothing_is_served_to_other_machines_unencrypted(host: str) -> None:
    """Beyond this machine the server needs TLS, or answers named proxies only."""
    with pytest.raises(ValueError, match="--certificate"):
        plan_site(host, 8700, url=None, has_tls=False, proxies=(), person_header="")

    behind = plan_site(host, 8700, url="https://lab.example.org", has_tls=False, proxies=["10.0.0.5"], person_header="")
    encrypted = plan_site(host, 443, url="https://lab.example.org", has_tls=True, proxies=(), person_header="")

    assert behind.only_by_proxies
    assert not encrypted.only_by_proxies
    assert "lab.example.org" in behind.hosts & encrypted.hosts


@pytest.mark.parametrize("url", ["https://Lab.example:443", "https://lab.example", "https://lab.example/"])
def test_the_usual_port_may_be_written_or_left_out(url: str) -> None:
    """Browsers leave the port of https out, whatever the owner of the lab has written."""
    site = plan_site("127.0.0.1", 8700, url=url, has_tls=False, proxies=(), person_header="")
    other = plan_site("127.0.0.1", 8700, url="https://lab.example:8443", has_tls=False, proxies=(), person_header="")
    own = plan_site("127.0.0.1", 443, url=None, has_tls=True, proxies=(), person_header="")

    assert site.url == "https://lab.example"
    assert site.hosts - {"localhost:8700", "127.0.0.1:8700", "[::1]:8700"} == {"lab.example", "lab.example:443"}
    assert other.url == "https://lab.example:8443"
    assert "lab.example" not in other.hosts
    assert {"localhost", "localhost:443"} <= own.hosts


def test_a_header_that_names_people_needs_a_named_proxy() -> None:
    """Nobody can be believed who they are by a header that everybody may send."""
    with pytest.raises(ValueError, match="--proxy"):
        plan_site("127.0.0.1", 8700, url=None, has_tls=False, proxies=(), person_header="X-User")


def test_a_home_sends_its_trials_to_a_workspace_of_the_lab(tmp_path: Path) -> None:
    """A writer's token sends records, which readers then see. A reader's or a revoked one sends none."""
    lab, token = new_lab(tmp_path / "lab")
    home = Home.create(tmp_path / "home")
    record(new_trial(home, "sent", lr=0.1), report(1, loss=0.5))
    with serving_lab(lab, token) as server:
        reader, _ = lab.people.issue("token", "ada", DAY_S, workspace="vision", role="reader")
        writer, made = lab.people.issue("token", "ada", DAY_S, workspace="vision", role="writer")

        with pytest.raises(WorkspaceRefusedError):
            push(home, f"{server.url}/w/vision", reader)
        push(home, f"{server.url}/w/vision", writer)
        lab.people.revoke(made.id)
        record(new_trial(home, "late"), report(1, loss=0.5))
        with pytest.raises(WorkspaceRefusedError):
            push(home, f"{server.url}/w/vision", writer)

        wait_for(lambda: server.get(f"{API}/home", reader).json()["num_trials"] == 1, TIMEOUT_S)
        assert server.get(f"{API}/trials/1", reader).json()["trial"]["hparams"] == {"lr": 0.1}


def push(home: Home, url: str, token: str) -> None:
    with WorkspaceConnection(url, token) as connection:
        Pusher(home, connection, with_checkpoints=True).push(home.trial_ids())


def test_the_files_of_a_checkpoint_are_read_from_its_own_workspace_only(tmp_path: Path) -> None:
    """A checkpoint that was sent along can be downloaded; one that a record names elsewhere is left alone."""
    lab, token = new_lab(tmp_path / "lab")
    secret = lab.add_workspace("secret")
    home = Home.create(tmp_path / "home")
    for place, storage_id in ((home, "own"), (secret, "foreign")):
        storage = DirectoryStorage(place.checkpoints)
        with storage.stage(storage_id) as staging:
            Path(staging.path, "weights.bin").write_bytes(storage_id.encode())
            staging.commit(unite([staging.seal()]), {})
    names = {"own": storage_name(home, home.checkpoints.as_uri()), "foreign": secret.checkpoints.as_uri()}
    for storage_id, name in names.items():
        stored = CheckpointStored(
            time=0.0,
            storage_id=storage_id,
            storage=name,
            steps_completed=1,
            metadata={},
            resources={"weights.bin": len(storage_id)},
        )
        record(new_trial(home), stored)
    with serving_lab(lab, token) as server:
        push(home, f"{server.url}/w/vision", token)
        wait_for(lambda: all(server.get(f"{API}/checkpoints/{each}").ok for each in names), TIMEOUT_S)

        own = server.get(f"{API}/checkpoints/own/file?name=weights.bin")
        foreign = server.get(f"{API}/checkpoints/foreign/file?name=weights.bin")

    assert own.content == b"own"
    assert (foreign.status_code, foreign.json()["error"]["kind"]) == (403, "storage_outside")
