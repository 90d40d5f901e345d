"""A cloud's notice that its machine ends is a stop of all ranks, where it was asked for; elsewhere nobody is asked."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from core.metadata_servers import FAULTS, AmazonStub, Fault, GoogleStub, StubServer
from core.rank_processes import Ranks, codes
from processes import Script, wait_for
from promises import promise

from core_sdk import core
from core_sdk._ground.records import StopAcknowledged
from core_sdk._home import Home
from core_sdk._home.journal import read_records
from core_sdk.core._preempt._notices import next_pause_s

INTERRUPTION = {"action": "terminate", "time": "2027-01-02T03:04:05Z"}


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[GoogleStub]:
    """Starts a stub of Google's server and points this process to it."""
    with GoogleStub() as server:
        tell(monkeypatch, server)
        yield server


@pytest.fixture
def amazon(monkeypatch: pytest.MonkeyPatch) -> Iterator[AmazonStub]:
    """Starts a stub of Amazon's server and points this process to it."""
    with AmazonStub() as server:
        tell(monkeypatch, server)
        yield server


def tell(monkeypatch: pytest.MonkeyPatch, server: GoogleStub | AmazonStub) -> None:
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)


def give_notice(server: StubServer) -> None:
    server.say(preempted="TRUE", interruption=INTERRUPTION)


def sources(home: Home) -> list[str]:
    """Returns the sources of the acknowledged stops."""
    records = read_records(home.trial(1).journal_path(1))
    return [record.source for record in records if isinstance(record, StopAcknowledged)]


def test_a_preemption_that_was_announced_before_the_start_stops(home: Home, google: GoogleStub) -> None:
    """A preemption that was announced before the start of the training stops it."""
    google.say(preempted="TRUE")

    with core.init(stop_notices="gce") as context:
        wait_for(context.preempt.should_preempt)

    assert sources(home) == [f"GCE preemption of {socket.gethostname()}"]


@promise("stop-notices")
def test_a_preemption_is_heard_at_once(home: Home, google: GoogleStub) -> None:
    """A preemption is noticed at once, by a request that the server answers when there is news."""
    with core.init(stop_notices="gce") as context:
        wait_for(lambda: any(path.endswith("last_etag=etag-FALSE") for _, path in google.requests))
        assert not context.preempt.should_preempt()
        num_requests = len(google.requests)

        google.say(preempted="TRUE")
        wait_for(context.preempt.should_preempt)

    assert len(google.requests) == num_requests


def test_maintenance_stops_only_what_does_not_survive_it(home: Home, google: GoogleStub) -> None:
    """Maintenance stops the training only if the machine is terminated and not if it is migrated."""
    google.say(maintenance="MIGRATE_ON_HOST_MAINTENANCE")

    with core.init(stop_notices=["gce"]) as context:
        google.wait_for_requests(2)
        assert not context.preempt.should_preempt()
    google.say(maintenance="TERMINATE_ON_HOST_MAINTENANCE")
    with core.init(stop_notices=["gce"]) as context:
        wait_for(context.preempt.should_preempt)

    assert sources(Home(home.root)) == []
    records = read_records(home.trial(2).journal_path(1))
    assert any(isinstance(each, StopAcknowledged) and "host maintenance" in each.source for each in records)


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
def test_an_interruption_on_ec2_stops(home: Home, amazon: AmazonStub, action: str) -> None:
    """An interruption of any kind on EC2 stops the training."""
    amazon.say(interruption={**INTERRUPTION, "action": action})

    with core.init(stop_notices="ec2") as context:
        wait_for(context.preempt.should_preempt)

    assert sources(home) == [f"EC2 spot interruption ({action}) of {socket.gethostname()}"]


def test_an_interruption_is_heard_after_it_is_announced(amazon: AmazonStub) -> None:
    """A 404 means that there is no notice; the server is asked again every five seconds."""
    with core.init(stop_notices="ec2") as context:
        amazon.wait_for_requests(2)
        assert not context.preempt.should_preempt()

        amazon.say(interruption=INTERRUPTION)

        wait_for(context.preempt.should_preempt)


def test_the_variable_asks_for_notices_too(
    google: GoogleStub, amazon: AmazonStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CORE_SDK_STOP_NOTICES may name several clouds."""
    monkeypatch.setenv("CORE_SDK_STOP_NOTICES", "gce, ec2")
    amazon.say(interruption=INTERRUPTION)

    with core.init() as context:
        google.wait_for_requests(1)
        wait_for(context.preempt.should_preempt)


@promise("stop-notices")
def test_nobody_is_asked_who_was_not_chosen(
    google: GoogleStub, amazon: AmazonStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server is asked by default, and the argument overrides the variable."""
    give_notice(amazon)
    before = asking_threads()
    with core.init():
        assert asking_threads() <= before
    monkeypatch.setenv("CORE_SDK_STOP_NOTICES", "ec2")
    with core.init(stop_notices=[]):
        assert asking_threads() <= before
    with core.init(stop_notices="gce"):
        google.wait_for_requests(1)

    assert amazon.requests == []


def asking_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "core-sdk-notices"}


def test_http_is_loaded_only_for_those_who_ask(run_script: Callable[..., tuple[int, str, str]]) -> None:
    """The HTTP library is not imported unless stop notices are asked for."""
    ended = run_script(
        "import sys\nfrom core_sdk import core\nwith core.init(): pass\nprint('requests' in sys.modules)"
    )

    assert ended[:2] == (0, "False\n")


@pytest.mark.parametrize(
    "variables",
    [
        {"CORE_SDK_STOP_NOTICES": "gce,azure"},
        {"CORE_SDK_STOP_NOTICES": "gce", "GCE_METADATA_HOST": "host:port"},
        {"CORE_SDK_STOP_NOTICES": "ec2", "AWS_EC2_METADATA_SERVICE_ENDPOINT": "https://169.254.169.254"},
    ],
)
def test_what_cannot_be_asked_is_refused(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown cloud or bad address is refused before the training, naming the variable."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(ValueError, match=list(variables)[-1]):
        core.init()


def test_an_unknown_cloud_on_one_rank_fails_all(ranks: Ranks) -> None:
    """An unknown cloud on one rank fails all ranks."""
    ended = ranks.run(
        """
        try:
            core.init(distributed=distributed, stop_notices="azure" if rank == 1 else "gce")
        except (ValueError, RankFailedError) as error:
            print("refused:", "'azure'" in str(error))
        """,
        variables={rank: {"GCE_METADATA_HOST": "127.0.0.1:1"} for rank in range(2)},
    )

    assert [each.output for each in ended] == ["refused: True\n"] * 2


NODES_TRAIN = """
with core.init(distributed=distributed, stop_notices=["gce"]) as context:
    step = 0
    while not context.preempt.should_preempt():
        step += 1
        distributed.allgather(step)
        if step == 3 and rank == 0:
            Path("running").touch()
    print(step, "all", len(set(distributed.allgather(step))))
"""


def num_askers(server: GoogleStub) -> int:
    """Returns how many have begun to ask the server."""
    return sum("last_etag=0" in path for _, path in server.requests)


@pytest.mark.parametrize("node", [0, 1])
def test_the_notice_of_one_node_stops_the_ranks_of_all(ranks: Ranks, home: Home, tmp_path: Path, node: int) -> None:
    """A notice on one node stops all ranks, and one rank per node asks its server."""
    with GoogleStub() as first, GoogleStub() as second:
        servers = [first, second]
        key = {"CORE_SDK_CHANNEL_KEY": "k" * 32}
        started = ranks.start(
            NODES_TRAIN.replace("rendezvous=", ""),
            4,
            num_nodes=2,
            variables={rank: servers[rank // 2].variables | key for rank in range(4)},
        )
        wait_for((tmp_path / "running").exists)
        wait_for(lambda: all(num_askers(server) for server in servers))

        servers[node].say(preempted="TRUE")
        ended = [ranks.wait(process) for process in started]

        askers = [num_askers(server) for server in servers]
    assert codes(ended) == [0] * 4
    assert {each.output.partition(" ")[2] for each in ended} == {"all 1\n"}
    assert askers == [1, 1]
    assert sources(home) == [f"GCE preemption of {socket.gethostname()}"]


@promise("stop-notices")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("cloud", ["gce", "ec2"])
def test_a_server_out_of_order_costs_one_warning(
    cloud: str, fault: Fault, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A faulty server gives one warning, no stop and no redirect, and is heard again when it recovers."""
    with (GoogleStub if cloud == "gce" else AmazonStub)(fault) as server:
        tell(monkeypatch, server)
        give_notice(server)
        with core.init(stop_notices=cloud) as context:
            wait_for(lambda: "are not heard" in caplog.text)
            assert not context.preempt.should_preempt()

            server.say(fault=None)

            wait_for(context.preempt.should_preempt)
        assert caplog.text.count("are not heard") == 1
        assert not any("elsewhere" in path for _, path in server.requests)
        assert "secret" not in caplog.text


def test_an_absent_server_is_asked_more_and_more_rarely() -> None:
    """The pause between requests to an absent server grows to half of the shortest notice."""
    pauses = list(itertools.accumulate(range(8), lambda pause_s, _: next_pause_s(pause_s), initial=0.0))

    assert pauses == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]


def test_an_absent_server_is_heard_when_it_comes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, free_port: int
) -> None:
    """A server that appears later is heard, after one warning."""
    monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{free_port}")

    with core.init(stop_notices="gce") as context:
        wait_for(lambda: "are not heard" in caplog.text)
        with GoogleStub(port=free_port) as server:
            give_notice(server)
            wait_for(context.preempt.should_preempt)

    assert caplog.text.count("are not heard") == 1


def test_a_proxy_of_the_environment_is_not_used(
    home: Home, google: GoogleStub, start_script: Callable[..., Script], free_port: int
) -> None:
    """Requests to the metadata server ignore the proxy of the environment."""
    google.say(preempted="TRUE")

    script = start_script(
        """
        from core_sdk import core
        with core.init(stop_notices="gce") as context:
            while not context.preempt.should_preempt(): pass
        """,
        http_proxy=f"http://127.0.0.1:{free_port}",
        HTTP_PROXY=f"http://127.0.0.1:{free_port}",
    )

    assert script.wait()[0] == 0


@pytest.mark.parametrize("fault", [None, "hangs"])
def test_the_end_does_not_wait_for_a_server(
    fault: Fault | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Closing the Context does not wait for a pending request, and its late answer is ignored."""
    before = asking_threads()
    with GoogleStub(fault) as server:
        tell(monkeypatch, server)
        context = core.init(stop_notices="gce")
        context.start()
        wait_for(lambda: any(fault or path.endswith("last_etag=etag-FALSE") for _, path in server.requests))

        context.close()

        asking = asking_threads() - before
        assert len(asking) == 1
        server.say(preempted="TRUE")
    for thread in asking:
        thread.join()
    assert "notice" not in caplog.text
