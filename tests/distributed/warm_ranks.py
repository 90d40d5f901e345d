"""A process that has imported all that ranks need, and forks them on demand: a rank starts in milliseconds.

It reads one request per line, as JSON: `{"start": {…}}` is answered by the new process's id, `{"reap": pid}` by the
exit status of one that has ended. One whose request names a `host` is a process of that host, and still our child.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import sys
import time
import traceback
from pathlib import Path

from hosts.namespaces import enter_host_of, process_ids_of

import core_sdk._distributed.joining._join
import core_sdk.core  # noqa: F401 - so that they are there already

_PR_SET_PDEATHSIG = 1


def main() -> None:
    request = _serve()
    if request is not None:
        _be_rank(request)


def _serve() -> dict[str, str] | None:
    """Forks a rank for each request; returns its task in the new process and None in the old one at the end."""
    for line in sys.stdin:
        request = json.loads(line)
        if "reap" in request:
            _, status = os.waitpid(request["reap"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        pid = _fork(request["start"].get("host"))
        if pid == 0:
            return dict(request["start"])
        print(pid, flush=True)
    return None


def _fork(host: int | None) -> int:
    """Forks a process on this machine, or on the host whose first process this is."""
    if host is None:
        return os.fork()
    with process_ids_of(host):
        pid = os.fork()
        if pid == 0:
            enter_host_of(host)
    return pid


def _be_rank(request: dict[str, str]) -> None:
    # No rank, not even a stopped one, outlives the tests.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    folder = Path(request["folder"])
    _redirect(1, folder / f"stdout.{request['rank']}")
    _redirect(2, folder / f"stderr.{request['rank']}")
    sys.argv = [request["script"], json.dumps(request)]
    os.environ.clear()
    os.environ.update(json.loads(request["variables"]))
    try:
        runpy.run_path(request["script"], run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:
        _record(folder / f"outcome.{request['rank']}", error)
        raise


def _redirect(descriptor: int, path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, descriptor)
    os.close(file)


def _record(path: Path, error: BaseException) -> None:
    fields = {
        "error": type(error).__name__,
        "text": str(error),
        "traceback": "".join(traceback.format_exception(error)),
        "at": time.monotonic(),
    }
    with path.open("a") as file:
        file.write(json.dumps(fields) + "\n")


if __name__ == "__main__":
    main()
