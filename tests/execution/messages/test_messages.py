"""Messages arrive, whatever is killed and away, and their secrets stay in one file."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from parts import needs
from processes import wait_for

from core_sdk import core
from core_sdk._execution.messages import Message, NotifyTarget, add_target, post, post_end, read_targets
from core_sdk._execution.messages._best import post_best
from core_sdk._execution.messages._forecasts import words_of
from core_sdk._execution.messages._posting import post_of_trial
from core_sdk._execution.messages._queue import Queue, next_due, targets_waiting
from core_sdk._execution.messages._sending import MessageSender, text_of
from core_sdk._ground.records import Settled
from core_sdk._home import Home
from core_sdk._home.finding.storage_forecast import StorageForecast
from core_sdk.client import Tracker


class Hook(http.server.ThreadingHTTPServer):
    """A webhook that refuses every second request, and keeps what it has taken by its identity."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.is_reliable = False
        self.num_requests = 0
        self.taken: dict[str, str] = {}
        self.num_repeated = 0

    @property
    def url(self) -> str:
        return f"json://user:secret-word@127.0.0.1:{self.server_address[1]}/hook"


class _Request(http.server.BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.num_requests += 1
        is_away = not self.server.is_reliable and self.server.num_requests % 2 == 1
        if not is_away:
            identity = self.headers["Idempotency-Key"]
            self.server.num_repeated += identity in self.server.taken
            self.server.taken.setdefault(identity, f"{content['title']}\n{content['message']}")
        self.send_response(503 if is_away else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def message(number: int) -> Message:
    return Message(identity=f"event-{number}", kind="failed", time=time.time(), title=f"trial {number} failed")


SENDER = """
import sys
from pathlib import Path
from core_sdk._execution.messages import MessageSender
MessageSender(Path(sys.argv[1]), gathering_s=0.0, longest_pause_s=0.05).run()
"""


@needs("apprise")
@pytest.mark.parametrize("num_kills", [4, 100])
def test_no_message_is_lost_when_senders_are_killed(home: Home, hook: Hook, num_kills: int) -> None:
    """Each arrives at least once, and what comes twice has the identity of the first time."""
    Home.create(home.root)
    add_target(home.root, NotifyTarget(name="hook", url=hook.url))
    queue, sent = Queue(home.root, "hook"), 0

    for kill in range(num_kills):
        for _ in range(5):
            queue.add(message(sent))
            sent += 1
        sender = subprocess.Popen([sys.executable, "-c", SENDER, str(home.root)])
        before = hook.num_requests
        wait_for(lambda before=before: hook.num_requests > before)  # type: ignore[misc]
        time.sleep(0.003 * (kill % 20))  # the moment of the kill varies
        sender.kill()
        sender.wait()
    MessageSender(home.root, gathering_s=0.0, longest_pause_s=0.05).run()

    lines = [line for text in hook.taken.values() for line in text.splitlines()[1:]]
    arrived = Counter(int(line.split()[1]) for line in lines)
    assert targets_waiting(home.root) == []
    assert sorted(arrived) == list(range(sent))
    assert set(arrived.values()) == {1}


@needs("apprise")
def test_a_secret_is_in_no_file_but_its_own(home: Home, hook: Hook) -> None:
    hook.is_reliable = True
    Home.create(home.root)
    add_target(home.root, NotifyTarget(name="hook", url=hook.url))
    Queue(home.root, "hook").add(message(1))

    MessageSender(home.root, gathering_s=0.0).run()

    with_secret = [path for path in home.root.rglob("*") if path.is_file() and b"secret-word" in path.read_bytes()]
    assert [path.name for path in with_secret] == ["notify.json"]
    assert with_secret[0].stat().st_mode & 0o777 == 0o600
    assert "secret-word" not in read_targets(home.root)[0].shown_url


def test_a_burst_becomes_one_message() -> None:
    title, text = text_of([message(number) for number in range(50)])

    assert title == "50 messages"
    assert text.splitlines()[0] == "trial 0 failed"
    assert text.splitlines()[-1] == "trial 49 failed"
    assert text_of([message(3)]) == ("trial 3 failed", "trial 3 failed")


def test_a_target_gets_what_it_wants() -> None:
    failed = Message(identity="x", kind="failed", time=0.0, title="", trial_id=3, experiment="mnist")

    assert NotifyTarget(name="a", url="").wants(failed)
    assert NotifyTarget(name="a", url="", experiment="mnist", trial=3).wants(failed)
    assert not NotifyTarget(name="a", url="", trial=4).wants(failed)
    assert not NotifyTarget(name="a", url="", experiment="cifar").wants(failed)
    assert not NotifyTarget(name="a", url="", kinds=("ended",)).wants(failed)


def test_a_storage_that_will_be_full_is_told() -> None:
    forecast = StorageForecast(10**10, 3 * 10**9, 1800.0, 1, ends=50_000.0, full=7200.0, fitting_interval_s=18_000.0)

    words = words_of(forecast, 0.0)

    assert words == (
        "its storage will be full in 2 h: it saves 3 GB every 30 min, and 1 other trials save there, too. "
        "With a save every 5 h all fit"
    )
    assert words_of(replace(forecast, full=None), 0.0) == ""
    assert words_of(replace(forecast, ends=None, full=90_000.0), 0.0) == ""


def test_one_event_waits_once(home: Home) -> None:
    Home.create(home.root)

    for _ in range(2):
        Queue(home.root, "hook").add(message(1))

    assert len(Queue(home.root, "hook").names()) == 1


def test_posting_fails_for_nobody(tmp_path: Path) -> None:
    """Without a home, without targets and with a damaged file it does nothing."""
    post(tmp_path / "nowhere", message(1))
    (tmp_path / "notify.json").write_text("{")

    post(tmp_path, message(1))

    assert not (tmp_path / "messages").exists()


def test_a_trial_that_nobody_resumes_is_told_later(home: Home) -> None:
    """The reminder waits in the queue, and is sent only if the trial is still paused then."""
    Home.create(home.root)
    add_target(home.root, NotifyTarget(name="hook", url="x"))
    with core.init() as context:
        home.trial(1).request_stop(1, "for the night")
        wait_for(context.preempt.should_preempt)
    reminder = Message(identity="1", kind="not_resumed", time=time.time(), title="later", trial_id=1, attempt=1)
    sent: list[str] = []

    def take(target: NotifyTarget, title: str, text: str, identity: str) -> str:
        sent.append(title)
        return ""

    Queue(home.root, "hook").add(reminder, after_s=7200)
    assert targets_waiting(home.root) == []
    assert (next_due(home.root) or 0.0) > time.time() + 3600
    Queue(home.root, "hook").clear()

    Queue(home.root, "hook").add(reminder)
    MessageSender(home.root, take, gathering_s=0.0).run()
    assert sent == ["later"]

    home.trial(1).append_change(Settled(time=time.time(), state="COMPLETED", reason="enough", attempt=1))
    Queue(home.root, "hook").add(msgspec.structs.replace(reminder, identity="2"))
    MessageSender(home.root, take, gathering_s=0.0).run()
    assert sent == ["later"]
    assert targets_waiting(home.root) == []


@needs("apprise")
def test_a_pause_puts_a_reminder_into_the_queue(home: Home, hook: Hook) -> None:
    """It waits there for as many hours as its target wants."""
    Home.create(home.root)
    add_target(home.root, NotifyTarget(name="hook", url=hook.url, kinds=("not_resumed",), remind_after_h=24))
    with core.init() as context:
        home.trial(1).request_stop(1, "for the night")
        wait_for(context.preempt.should_preempt)

    post_end(home.trial(1))

    assert (next_due(home.root) or 0.0) > time.time() + 23 * 3600
    Queue(home.root, "hook").clear()  # which ends the process that waits


@needs("apprise")
def test_the_best_trial_so_far_is_told_once(home: Home, hook: Hook) -> None:
    """Not the only one, and not one that is worse."""
    hook.is_reliable = True
    Home.create(home.root)
    add_target(home.root, NotifyTarget(name="hook", url=hook.url, kinds=("best", "alert")))

    for accuracy in (0.5, 0.7, 0.6):
        with core.init(name="mnist", metric="accuracy", larger_is_better=True) as context:
            context.train.report_validation_metrics(1, {"accuracy": accuracy})
        for trial_id in home.trial_ids():
            post_best(home.trial(trial_id))
    post_of_trial(home.trial(1), "alert", "last", "the last message")

    wait_for(lambda: "the last message" in "".join(hook.taken.values()))
    told = "".join(hook.taken.values())
    assert "trial 2, with accuracy 0.7 at step 1" in told
    assert told.count("the best so far") == 1


SEARCH = """
name: searched
entrypoint: python3 train.py
hyperparameters: {}
searcher: {name: single, metric: error, max_length: {batches: 1}}
resources: {slots_per_trial: 0}
"""


@needs("apprise")
def test_the_end_of_an_experiment_is_told(tmp_path: Path, home: Home, hook: Hook) -> None:
    hook.is_reliable = True
    Home.create(home.root)
    add_target(home.root, NotifyTarget(name="hook", url=hook.url, kinds=("experiment",)))
    (tmp_path / "config.yaml").write_text(SEARCH.replace("python3", sys.executable))
    script = "with core.init() as context:\n    context.train.report_validation_metrics(1, {'error': 1.0})"
    (tmp_path / "train.py").write_text(f"from core_sdk import core\n{script}")

    command(tmp_path, "experiment", "create", "--local", "config.yaml", ".")

    wait_for(lambda: bool(hook.taken))
    assert "experiment searched (1) has ended\ncompleted, 1 trials" in "".join(hook.taken.values())


def command(directory: Path, *arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-m", "core_sdk._interfaces.cli", *arguments]
    return subprocess.run(start, capture_output=True, text=True, timeout=60, cwd=directory, **options)  # type: ignore[call-overload, no-any-return]


@needs("apprise")
def test_the_end_of_a_training_and_its_alerts_are_told(tmp_path: Path, home: Home, hook: Hook) -> None:
    """The agent posts, and a process of its own sends: the command does not wait for that."""
    hook.is_reliable = True
    source = "from core_sdk import core\nwith core.init() as context:\n    context.alert('hot', 'too hot')\n    1 / 0"
    (tmp_path / "train.py").write_text(source)
    added = command(tmp_path, "notify", "add", "hook", "-", input=hook.url)
    assert (added.returncode, added.stderr) == (0, "")

    command(tmp_path, "run", "--", sys.executable, "train.py")

    wait_for(lambda: "ZeroDivisionError" in "".join(hook.taken.values()))
    told = "".join(hook.taken.values())
    name = Tracker().get_trial(1).name
    assert "has an alert: hot: too hot" in told
    assert f"trial 1{f' ({name})' if f'({name})' in told else ''} of train.py failed" in told
    listed = command(tmp_path, "notify", "list")
    assert "secret-word" not in listed.stdout and "json://********" in listed.stdout
    assert command(tmp_path, "notify", "test", "hook").stdout == "hook has taken a message\n"
    assert command(tmp_path, "notify", "remove", "hook").returncode == 0
    assert command(tmp_path, "notify", "list").stdout.startswith("No targets")
    assert list((home.root / "messages" / "hook").iterdir()) == []
