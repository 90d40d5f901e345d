"""What the starter of a process ignores or blocks does not reach what `heed_signals` is called in."""

from __future__ import annotations

import signal
import subprocess
import sys

LOOKING = """
import signal
from core_sdk._machine.processes import heed_signals

def look():
    numbers = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    print([signal.getsignal(number) == signal.SIG_IGN for number in numbers], signal.SIGTERM in blocked())

def blocked():
    return signal.pthread_sigmask(signal.SIG_BLOCK, ())

look()
heed_signals()
look()
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def _ignore() -> None:
    """Ignores and blocks signals as `nohup` and background commands of a shell do."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def test_a_process_hears_again_what_its_starter_ignores() -> None:
    """A process can undo the ignored and blocked signals that it inherited."""
    run = subprocess.run([sys.executable, "-c", LOOKING], preexec_fn=_ignore, capture_output=True, text=True)

    assert run.stdout.splitlines() == ["[True, True, True] True", "[False, False, False] False", "True"], run.stderr
