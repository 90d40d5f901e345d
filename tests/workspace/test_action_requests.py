"""Requests to the home that has sent a trial: to whom they go, and that each is done at most once."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from processes import Script, wait_for
from workspace.workspaces import ServerProcess, pushed, served, train

from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import Report, decode_file, encode_file
from core_sdk._home import Home, TrialFolder
from core_sdk._home.journal import encode_line
from core_sdk._home.pushes import ActionRequests, Login, PushRecord, log_in, pusher_lock
from core_sdk._home.pushes._requests import ActionRequest, ActionRequestsRecord
from core_sdk._workspace.actions.acting import Hands
from core_sdk._workspace.actions.asker import Asker
from core_sdk._workspace.actions.requesting import ask_home
from core_sdk._workspace.connection import WorkspaceConnection
from core_sdk._workspace.pushing import Pusher
from core_sdk._workspace.wire import Heard, PieceAnswers, PieceHead, SignOfLife
from core_sdk.errors import WorkspaceRequestError

OWNER = Asker("ada", can_act=True)
SENDER = "core-sdk ui"
"""The person whom a server without people names."""


@pytest.fixture
def home(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return Home.create(home.root)


@pytest.fixture
def workspace(tmp_path: Path) -> Home:
    return Home.create(tmp_path / "lab")


@pytest.fixture
def url(workspace: Home) -> Iterator[str]:
    with served(workspace) as url:
        yield url


@dataclass
class Machine:
    """The pusher of a home, which writes down what it does."""

    home: Home
    url: str
    done: list[tuple[Any, ...]] = field(default_factory=list)
    problem: str = ""

    def __post_init__(self) -> None:
        (self.home.root / "pushes").mkdir(exist_ok=True)
        self.lock = AliveLock(pusher_lock(self.home.root))
        self.acting = ThreadPoolExecutor(1)
        self.hands = Hands(self.home, self.carry_out, self.acting)
        self.pusher = Pusher(self.home, WorkspaceConnection(self.url), hands=self.hands)

    def carry_out(self, home: Home, trial_id: int, verb: str, by: str, arguments: Mapping[str, Any]) -> Any:
        self.done.append((trial_id, verb, by))
        if self.problem:
            raise ValueError(self.problem)
        return {"trial_id": trial_id}

    def close(self) -> None:
        self.acting.shutdown()
        self.lock.release()

    def turn(self) -> None:
        """Hears what is asked, does it, and tells what came of it."""
        for _ in range(2):
            self.pusher.push([])
            self.acting.submit(int).result()
            self.pusher._signs._last_sign = -1.0


@pytest.fixture
def machine_of(url: str) -> Iterator[Callable[[Home], Machine]]:
    machines: list[Machine] = []

    def make(home: Home) -> Machine:
        machines.append(Machine(home, url))
        return machines[-1]

    yield make
    for machine in machines:
        machine.close()


def outcomes(workspace: Home) -> list[tuple[str, str, str]]:
    return [(one.verb, one.state, one.message) for one in ActionRequests(workspace.root).all()]


def test_a_request_is_done_once_in_the_home_that_has_sent_the_trial(
    home: Home, workspace: Home, url: str, machine_of: Callable[[Home], Machine]
) -> None:
    """It comes with the number of the trial there, and its answer goes back. The same request twice is one."""
    pushed(home, url, train(home, 2).trial_id)
    second = train(home, 2)
    pushed(home, url, second.trial_id)
    first = ask_home(workspace, 2, "pause", {}, OWNER)
    same = ask_home(workspace, 2, "pause", {}, OWNER)
    machine = machine_of(home)

    for _ in range(3):
        machine.turn()

    assert same.request_id == first.request_id
    assert machine.done == [(2, "pause", f"ada, in {url}")]
    assert outcomes(workspace) == [("pause", "done", "")]
    assert ActionRequests(workspace.root).all()[0].answer == {"trial_id": 2}
    assert PushRecord(trial_id=2, workspace=url) in _wanted(home)


def _wanted(home: Home) -> list[PushRecord]:
    return [decode_file(path.read_bytes(), PushRecord) for path in (home.root / "pushes").glob("*.json")]


def test_a_refusal_and_its_reason_go_back(
    home: Home, workspace: Home, url: str, machine_of: Callable[[Home], Machine]
) -> None:
    """What the verb raises is what who has asked reads."""
    pushed(home, url, train(home, 2).trial_id)
    ask_home(workspace, 1, "kill", {}, OWNER)

    machine = machine_of(home)
    machine.problem = "it does not run"
    machine.turn()

    assert outcomes(workspace) == [("kill", "refused", "it does not run")]


def test_only_the_sender_and_owners_may_ask(home: Home, workspace: Home, url: str) -> None:
    """Another writer may not, and nobody for a trial that no home has sent."""
    pushed(home, url, train(home, 2).trial_id)
    workspace.create_trial().write_record(workspace.folder(1).read_record())

    assert ask_home(workspace, 1, "pause", {}, Asker(SENDER, can_act=True, is_owner=False)).by == SENDER
    with pytest.raises(PermissionError, match="trial 1 was sent by core-sdk ui"):
        ask_home(workspace, 1, "pause", {}, Asker("eve", can_act=True, is_owner=False))
    with pytest.raises(WorkspaceRequestError, match="no home has sent it"):
        ask_home(workspace, 2, "pause", {}, OWNER)


def test_a_copy_of_the_home_and_another_home_do_not_get_it(
    home: Home, workspace: Home, url: str, machine_of: Callable[[Home], Machine]
) -> None:
    """Only the home that has sent the trial does it; once its copy goes on, that has a trial of its own."""
    pushed(home, url, train(home, 2).trial_id)
    ask_home(workspace, 1, "pause", {}, OWNER)
    copy = Home(shutil.copytree(home.root, home.root.with_name("copy")))
    other = Home.create(home.root.with_name("other"))
    machines = [machine_of(each) for each in (copy, other, home)]

    for machine in machines:
        machine.turn()

    assert [len(machine.done) for machine in machines] == [0, 0, 1]


def test_a_home_without_the_trial_refuses(
    home: Home, workspace: Home, url: str, machine_of: Callable[[Home], Machine]
) -> None:
    """The trial was deleted at home, and another one never stands in for it."""
    folder = train(home, 2)
    pushed(home, url, folder.trial_id)
    train(home, 2)
    folder.clear()
    ask_home(workspace, 1, "resume", {}, OWNER)
    machine = machine_of(home)

    machine.turn()

    assert machine.done == []
    assert outcomes(workspace) == [("resume", "refused", "the home has no such trial any more")]


def test_a_user_may_refuse_all(home: Home, workspace: Home, url: str, machine_of: Callable[[Home], Machine]) -> None:
    """As `core-sdk login --no-actions` says."""
    pushed(home, url, train(home, 2).trial_id)
    ask_home(workspace, 1, "resume", {}, OWNER)
    log_in(Login(name="lab", url=url, takes_actions=False))
    machine = machine_of(home)

    machine.turn()

    assert machine.done == []
    assert "takes no actions from afar" in outcomes(workspace)[0][2]


def test_a_request_is_void_after_a_day(
    home: Home, workspace: Home, url: str, machine_of: Callable[[Home], Machine]
) -> None:
    """It is not carried out any more, and the same can be asked again."""
    pushed(home, url, train(home, 2).trial_id)
    request = ask_home(workspace, 1, "resume", {}, OWNER)
    old = msgspec.structs.replace(request, time=time.time() - 86401)
    (workspace.root / "requests.json").write_bytes(encode_file(ActionRequestsRecord(requests=[old])))
    machine = machine_of(home)

    machine.turn()
    again = ask_home(workspace, 1, "resume", {}, OWNER)

    assert machine.done == []
    assert outcomes(workspace) == [("resume", "expired", ""), ("resume", "waits", "")]
    assert again.request_id != request.request_id


def test_only_requests_that_are_void_make_room_for_others(workspace: Home) -> None:
    """Of 1,200 requests, those of the last two days stay, and the newest 1,000 in any case."""
    old = [_request(number, age_s=3 * 86400) for number in range(100)]
    new = [_request(number, age_s=3600) for number in range(100, 1200)]
    (workspace.root / "requests.json").write_bytes(encode_file(ActionRequestsRecord(requests=old + new)))

    ActionRequests(workspace.root).add(_request(1200, age_s=0))

    kept = [one.trial_id for one in ActionRequests(workspace.root).all()]
    assert kept == list(range(100, 1201))


def _request(number: int, age_s: float) -> ActionRequest:
    return ActionRequest(request_id=f"r{number}", trial_id=number, verb="resume", by="ada", time=time.time() - age_s)


def test_a_request_that_was_cut_off_is_not_done_again(
    home: Home, workspace: Home, url: str, machine_of: Callable[[Home], Machine]
) -> None:
    """A pusher was killed after it had begun it: the next one says so."""
    pushed(home, url, train(home, 2).trial_id)
    request = ask_home(workspace, 1, "resume", {}, OWNER)
    ActionRequests(home.root).add(msgspec.structs.replace(request, home="", sender=""))
    machine = machine_of(home)

    machine.turn()

    assert machine.done == []
    assert "was killed meanwhile: look whether it is done" in outcomes(workspace)[0][2]


def test_damaged_requests_stop_no_record(
    home: Home, workspace: Home, url: str, machine_of: Callable[[Home], Machine]
) -> None:
    """The files of requests of both sides are spoilt, and all that is recorded arrives."""
    for side in (home, workspace):
        (side.root / "requests.json").write_bytes(b"{")
    machine = machine_of(home)

    machine.pusher.push([train(home, 2).trial_id])

    assert workspace.trial_ids() == [1]
    assert machine.done == []


ACTING = """
    import sys, time
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path
    from core_sdk._home.pushes import Login
    from core_sdk._workspace.following import push_wanted

    def carry_out(home, trial_id, verb, by, arguments):
        with open(sys.argv[2], "a") as file:
            file.write(f"{arguments['number']}\\n")
        time.sleep(0.05)

    push_wanted(Path(sys.argv[1]), carry_out, ThreadPoolExecutor(1), print)
"""


def test_kills_of_both_sides_do_nothing_twice(
    home: Home, workspace: Home, free_port: int, tmp_path: Path, start_script: Callable[..., Script]
) -> None:
    """Pusher and server are killed at random moments. Each request is done once or never, and has an outcome."""
    server, chance = ServerProcess(workspace, free_port), random.Random(7)
    log_in(Login(name="lab", url=server.url))
    server.start()
    pushed(home, server.url, train(home, 2).trial_id)
    done = tmp_path / "done"
    done.touch()
    (home.root / "pushes").mkdir()
    for number in range(12):
        ask_home(workspace, 1, "resume", {"number": number}, OWNER)
        record = encode_file(PushRecord(trial_id=1, workspace=server.url))
        (home.root / "pushes" / "1.json").write_bytes(record)
        pusher = start_script(ACTING, str(home.root), str(done), name="acting.py")
        time.sleep(chance.uniform(0.3, 2.0))  # the moment of the kill
        if number % 3 == 0:
            server.kill()
            server.start()
        pusher.process.kill()
        pusher.wait()
    (home.root / "pushes" / "1.json").write_bytes(record)
    start_script(ACTING, str(home.root), str(done), name="acting.py")
    wait_for(lambda: all(state in ("done", "refused") for _, state, _ in outcomes(workspace)))
    shutil.rmtree(home.root / "pushes")
    server.kill()

    lines = done.read_text().split()
    told = [one.arguments["number"] for one in ActionRequests(workspace.root).all() if one.outcome == "done"]
    assert len(lines) == len(set(lines))
    assert {str(number) for number in told} <= set(lines)
    assert told


class _Growing(WorkspaceConnection):
    """While each request is on its way, the trial reports more, until a sign of life is given."""

    def __init__(self, url: str, folder: TrialFolder) -> None:
        super().__init__(url)
        self._folder = folder
        self.signs: list[SignOfLife] = []

    def send(self, pieces: Iterable[tuple[PieceHead, bytes]]) -> PieceAnswers:
        answers = super().send(pieces)
        if not self.signs:
            with self._folder.journal_path(1).open("ab") as journal:
                journal.write(encode_line(Report(2.0, "training", 9, {"loss": 1.0})))
        return answers

    def give_sign(self, sign: SignOfLife) -> Heard:
        self.signs.append(sign)
        return super().give_sign(sign)


def test_a_trial_that_reports_faster_than_the_line_is_heard_all_the_same(home: Home, url: str) -> None:
    """There is always more to send, and the sign of life is given in between."""
    folder = train(home, 2)
    connection = _Growing(url, folder)

    Pusher(home, connection).push([folder.trial_id])

    assert len(connection.signs) == 1
