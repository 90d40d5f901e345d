"""The hosts of the tests are hosts: what is done to one of them really happens."""

from __future__ import annotations

import signal
import subprocess
import sys

from parts import needs
from processes import wait_for

from hosts.hosts import Host, HostGroup, host_group
from hosts.namespaces import processes_in

ECHO = """
import socket
server = socket.create_server(("", 5000))
print("listens", flush=True)
while True:
    connection, _ = server.accept()
    while content := connection.recv(1):
        connection.sendall(content)
"""
ASK = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 5000))
for _ in range(3):
    began_at = time.monotonic()
    connection.sendall(b"x")
    assert connection.recv(1) == b"x"
    print(time.monotonic() - began_at, flush=True)
    if len(sys.argv) > 2:
        input()
"""


def echo_on(host: Host) -> subprocess.Popen[str]:
    """Starts a server on the host that sends back what it receives."""
    process = host.start([sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "listens\n"
    return process


def is_reached(host: Host, other: Host) -> bool:
    """Returns whether one host reaches the other within half a second."""
    probe = [sys.executable, "-c", "import socket, sys; socket.create_connection((sys.argv[1], 5000), 0.5).close()"]
    return host.start([*probe, other.name], stderr=subprocess.DEVNULL).wait() == 0


@needs("hosts")
def test_hosts_have_names_and_processes_of_their_own_and_everybodys_files() -> None:
    """Hosts have their own names and processes, share all files, and find each other by name."""
    look = "hostname; getent hosts h3 | cut -d' ' -f1; echo $$; ls /proc | grep -c '^[0-9]*$'; pwd"
    with host_group(3) as hosts:
        said = hosts[1].run(["bash", "-c", look], cwd="/usr/lib").stdout.splitlines()

    assert said[:2] == ["h2", "10.77.0.3"]
    assert int(said[2]) < 10
    assert int(said[3]) < 10
    assert said[-1] == "/usr/lib"


@needs("hosts")
def test_signals_and_exits_pass_between_a_process_on_a_host_and_its_parent_here() -> None:
    """A process on a host is a child of the test, which can send it signals and gets its exit status."""
    with host_group(1) as hosts:
        sleeper = hosts[0].start(["sleep", "600"])
        sleeper.terminate()

        assert sleeper.wait() == -signal.SIGTERM
        assert hosts[0].start(["bash", "-c", "exit 7"]).wait() == 7


@needs("hosts")
def test_a_killed_host_has_no_process_left() -> None:
    """No process is left on a killed host, or after the test, not even one that left its parent's session."""
    escape = ["bash", "-c", "setsid sleep 600 > /dev/null 2>&1 & setsid sleep 600 > /dev/null 2>&1 &"]
    with host_group(2) as hosts:
        sleeper = hosts[0].start(["sleep", "600"])
        for host in hosts:
            host.run(escape)
        hosts[0].kill()

        assert sleeper.wait() == -signal.SIGKILL
        assert (hosts[0].living(), len(hosts[1].living())) == ([], 2)
    assert [processes_in(host.process_ids) for host in hosts] == [[], []]


@needs("hosts")
def test_a_cut_cable_stops_what_was_on_its_way_and_a_mended_one_lets_it_pass() -> None:
    """A cut cable holds up what is sent until it is mended, and no connection breaks meanwhile."""
    with host_group(2) as hosts:
        echo_on(hosts[1])
        asking = hosts[0].start(
            [sys.executable, "-c", ASK, "h2", "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert asking.stdin is not None
        assert asking.stdout is not None
        asking.stdout.readline()

        hosts[1].cut()
        asking.stdin.write("\n")
        asking.stdin.flush()
        cut_reached = is_reached(hosts[0], hosts[1])
        hosts[1].mend()
        took_s = float(asking.stdout.readline())

    assert not cut_reached
    assert took_s > 0.5


@needs("hosts")
@needs("latency")
def test_a_slow_cable_delays_each_way() -> None:
    """With a slow cable, a round trip takes twice the latency, and such a cable can be cut too."""
    with host_group(2, latency_s=0.05) as hosts:
        echo_on(hosts[1])
        times_s = [float(line) for line in hosts[0].run([sys.executable, "-c", ASK, "h2"]).stdout.split()]
        hosts[1].cut()
        cut_reached = is_reached(hosts[0], hosts[1])
        hosts[1].mend()
        wait_for(lambda: is_reached(hosts[0], hosts[1]))

    assert all(0.1 <= time_s < 0.3 for time_s in times_s)
    assert not cut_reached


RECEIVE = """
import socket
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # all of them, however late it reads
receiver.bind(("", 5000))
receiver.settimeout(1.0)
print("listens", flush=True)
count = 0
try:
    while receiver.recv(10) != b"last":
        count += 1
except TimeoutError:
    pass
print(count)
"""
SEND = """
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(500):
    sender.sendto(b"x", ("h2", 5000))
"""


@needs("hosts")
@needs("packet loss")
def test_a_lossy_host_loses_about_this_part_of_what_comes() -> None:
    """A lossy host loses about the given share of packets, and none after the loss is set to 0."""
    with host_group(2) as hosts:
        hosts[1].lose(percent=20)
        lossy = num_received(hosts)
        hosts[1].lose(percent=0)

        assert 300 < lossy < 480
        assert num_received(hosts) == 500


def num_received(hosts: HostGroup) -> int:
    """Returns how many of 500 packets from the first host arrive at the second."""
    receiver = hosts[1].start([sys.executable, "-c", RECEIVE], stdout=subprocess.PIPE, text=True)
    assert receiver.stdout is not None
    assert receiver.stdout.readline() == "listens\n"
    hosts[0].run([sys.executable, "-c", SEND])
    return int(receiver.stdout.readline())


@needs("hosts")
def test_a_host_can_have_a_file_of_its_own() -> None:
    """bind() puts a file in place of another on one host only."""
    with host_group(2) as hosts:
        hosts[0].bind("/etc/hosts", "/etc/passwd")
        seen = [host.run(["head", "-1", "/etc/passwd"]).stdout for host in hosts]

    assert seen == ["127.0.0.1 localhost\n", "root:x:0:0:root:/root:/bin/bash\n"]


@needs("hosts")
def test_hosts_end_with_the_process_that_made_them() -> None:
    """Hosts end with the process that made them, even if it is killed."""
    source = "from hosts.hosts import *\nimport time\nwith host_group(1) as hosts:\n"
    source += " hosts[0].start(['sleep', '600'])\n print(hosts[0].process_ids, flush=True)\n time.sleep(600)"
    maker = subprocess.Popen(
        [sys.executable, "-c", source], cwd=__file__.rpartition("/hosts/")[0], stdout=subprocess.PIPE, text=True
    )
    with maker:
        assert maker.stdout is not None
        process_ids = maker.stdout.readline().strip()
        num_living = len(processes_in(process_ids))
        maker.kill()

    assert num_living == 2
    wait_for(lambda: not processes_in(process_ids), timeout_s=10)
