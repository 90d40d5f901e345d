"""Guardians that are disturbed themselves: killed where no other one can be started, or stopped."""

from __future__ import annotations

import subprocess
import sys
import threading

import psutil
import pytest
from processes import wait_for

from core_sdk._machine.processes import Guardian


def test_a_supervisor_whose_guardian_cannot_be_replaced_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor whose guardian cannot be replaced goes on: its calls neither fail nor wait for a guardian."""
    rank = subprocess.Popen(["sleep", "600"], start_new_session=True)
    guardian, process = _started("CORE_SDK_GUARDED_test=x")
    guardian.guard(rank.pid)
    monkeypatch.setattr(sys, "executable", "/no/such/python")

    process.kill()
    wait_for(lambda: not any(thread.name == "core-sdk-guardian" for thread in threading.enumerate()))
    rank.kill()
    rank.wait()
    guardian_ends = threading.Thread(target=guardian.dismiss, daemon=True)
    guardian_ends.start()
    guardian_ends.join(10)

    assert not guardian_ends.is_alive()


def test_a_guardian_that_is_stopped_does_not_outlive_its_dismissal() -> None:
    """Dismissing a guardian that is stopped by SIGSTOP kills it, since it may hold a lock."""
    guardian, process = _started("CORE_SDK_GUARDED_test=y")
    process.suspend()

    guardian.dismiss()

    assert not process.is_running()


def _started(mark: str) -> tuple[Guardian, psutil.Process]:
    """Returns a guardian and its process. Other tests may have left children of this one."""
    before = set(psutil.Process().children())
    guardian = Guardian(None, mark)
    (process,) = set(psutil.Process().children()) - before
    return guardian, process
