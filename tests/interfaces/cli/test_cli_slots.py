"""`core-sdk run --slots`, and what shows the slots."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from interfaces.cli.commands import Cli, StartCli, WriteScript
from processes import wait_for

from core_sdk._execution.steering import trials
from core_sdk._home import Home
from core_sdk._machine.slots import SlotDirectory, taken_slots
from core_sdk.errors import SlotsTakenError

_ELSEWHERE = Path("/home/of/another")


def _num_tickets() -> int:
    return len(list(SlotDirectory().path.glob("*.ticket")))


def test_a_command_waits_for_its_slots(home: Home, cli: Cli, start_cli: StartCli, write_script: WriteScript) -> None:
    """A command says who has its slots, waits for them without a trial, and keeps them from others while it runs.

    Another home's list of all queues shows it.
    """
    script = write_script(
        """
        import os, signal
        from core_sdk import get_cluster_info
        print(get_cluster_info().slot_ids, repr(os.environ["CUDA_VISIBLE_DEVICES"]), flush=True)
        signal.pause()
        """
    )
    all_slots = len(os.sched_getaffinity(0))
    with taken_slots(1, _ELSEWHERE):
        run = start_cli("run", "--slots", str(all_slots), "--", sys.executable, str(script))
        wait_for(lambda: _num_tickets() == 2)
        assert run.process.stderr is not None
        told = run.process.stderr.readline()
        is_recorded = home.root.exists() and home.trial_ids() != []
        [queued] = json.loads(cli("queue", "list", "--json").output)
        seen = json.loads(cli("queue", "list", "--all-homes", "--json", CORE_SDK_HOME=f"{home.root}-other").output)
    run.read_until(f"{list(range(all_slots))} ''")
    with SlotDirectory().locked():
        [ticket] = SlotDirectory().tickets()
    os.kill(run.process.pid, signal.SIGTERM)
    run.wait()

    assert told.startswith(
        f"core-sdk: waiting for {all_slots} of {all_slots} slots: a trial of {_ELSEWHERE} has cpu-0 since "
    )
    assert not is_recorded
    assert seen == [queued] and queued["name"] == f"a command (process {run.process.pid})"
    assert (queued["engine"], queued["state"], queued["place"], queued["home"]) == (
        "local",
        "QUEUED",
        1,
        str(home.root),
    )
    assert told.startswith(f"core-sdk: {queued['why']}") and queued["since"]
    assert (len(ticket.held), ticket.home, ticket.trial_id) == (all_slots, str(home.root), 1)
    assert _num_tickets() == 0


def test_ctrl_c_ends_the_wait(home: Home, start_cli: StartCli) -> None:
    """Ctrl-C ends the wait for slots: nothing was started, and nothing stays in line."""
    with taken_slots(1000, _ELSEWHERE):
        run = start_cli("run", "--slots", "1", "--", "true")
        assert run.process.stderr is not None and "waiting for 1" in run.process.stderr.readline()

        os.kill(run.process.pid, signal.SIGINT)
        status, _, errors = run.wait()

        assert (status, errors) == (130, "core-sdk: it no longer waits for slots, and nothing was started\n")
        assert (_num_tickets(), home.root.exists()) == (1, False)


def test_a_trial_that_took_slots_takes_them_again(home: Home, cli: Cli) -> None:
    """A resumed trial takes as many slots as it had; one of a door that does not wait is told who has them."""
    cli("run", "--slots", "2", "--", "false")
    assert home.trial(1).read_record().slots_to_take == 2

    with taken_slots(1000, _ELSEWHERE), pytest.raises(SlotsTakenError, match="waiting for 2 of "):
        trials.resume(home, 1)
    assert cli("trial", "resume", "1").status == 1
    assert (home.trial(1).attempts(), _num_tickets()) == ([1, 2], 0)


def test_slots_are_listed_with_who_has_them(home: Home, cli: Cli) -> None:
    """The list of slots shows who has them and since when, the trial of another home of one's own, and who waits."""
    with taken_slots(1, _ELSEWHERE) as slots, taken_slots(1, home.root):
        assert slots is not None and slots.ticket is not None
        slots.ticket.name_trial(5)

        as_json, as_table = cli("slot", "list", "--json"), cli("slot", "list")

    told = [(row["user"], row["trial_id"], row["home"]) for row in json.loads(as_json.output)]
    user = getpass.getuser()
    assert told[:2] == [(user, 5, str(_ELSEWHERE)), (user, None, "")]
    assert re.search(rf"^ *0 +CPU +{user} +\d\d:\d\d +5 +{_ELSEWHERE}$", as_table.output, re.MULTILINE)


def test_what_cannot_be_slots_is_refused(cli: Cli) -> None:
    """A part of a slot, no slot, and a slot directory that others cannot write are refused in words."""
    refused = [cli("run", *given, "--", "true") for given in (("--slots", "0.5"), ("--slots", "0"), ("--avoid-busy",))]
    Path(os.environ["CORE_SDK_SLOTS"]).mkdir(mode=0o755)
    closed = cli("run", "--slots", "1", "--", "true")

    assert [run.status for run in refused] == [2, 2, 2]
    assert "0.5 is no number of slots: a slot is whole" in refused[0].errors
    assert (closed.status, "chmod 1777" in closed.errors) == (1, True)
