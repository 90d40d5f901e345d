"""Starts the launcher on one host, as requested by a head on another host.

It is a process of its own, started by this file's path, by ssh or as a child. The first line of its standard input is
the job. The others are commands: `signal N` for the launcher, `end`, `kill`, and `alive`, by which the head shows that
it is there. When they end, or none comes for a minute, the head is dead, and the ranks are ended as with `end`:
SIGTERM, a short grace, and a kill of all that is left. Its own reports to the head are lines on stderr, among those of
the launcher, that begin with the job's mark.

If this process is killed, a guardian ends the training here and removes its files.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from core_sdk.environment import Mark, rank_variables
from core_sdk.environment.names import ENDING_VARIABLE, RUN_INFO_VARIABLE
from core_sdk.processes import Guardian

_SILENCE_S = 60.0
_GRACE_S = 10.0
_CHUNK_BYTES = 1 << 16


def main() -> None:
    commands = _commands()
    job = json.loads(next(commands, b"null"))
    if job is None:
        return
    try:
        os.chdir(job["directory"])
    except OSError as error:
        reason = f"the working directory {job['directory']} cannot be entered there: {error.strerror}"
        _tell_head(job, refused=reason)
        return
    directory = Path(tempfile.mkdtemp(prefix="core-sdk-node-"))
    mark = Mark.of(directory)
    guardian = Guardian(directory, str(mark))
    try:
        _run(job, commands, directory, guardian, mark)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        guardian.dismiss()


def _run(job: dict[str, Any], commands: Iterator[bytes], directory: Path, guardian: Guardian, mark: Mark) -> None:
    launcher = _start(job, directory, mark)
    guardian.guard(launcher.pid)

    def hand_on(number: int, frame: FrameType | None) -> None:
        launcher.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, hand_on)
    _tell_head(job, started=socket.gethostname())
    threading.Thread(target=_obey, args=(commands, launcher, guardian), daemon=True).start()
    code = launcher.wait()
    _tell_head(job, ended=code, result=_result(directory))


def _start(job: dict[str, Any], directory: Path, mark: Mark) -> subprocess.Popen[bytes]:
    run_info = directory / "run_info.json"
    run_info.touch(mode=0o600)
    run_info.write_text(job["run_info"])
    told = {RUN_INFO_VARIABLE: str(run_info), ENDING_VARIABLE: f"{os.getpid()}:{directory / 'result.json'}"}
    return subprocess.Popen(
        # -P keeps the working directory out of the path, since the user may have a `launch.py` there.
        [sys.executable, "-P", "-m", job["module"], *job["arguments"]],
        env=rank_variables(job["variables"] | told | mark.variables, {}),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def _tell_head(job: dict[str, Any], **record: Any) -> None:
    line = job["mark"].encode() + json.dumps(record).encode() + b"\n"
    with contextlib.suppress(OSError):  # the head is gone
        while line:
            line = line[os.write(2, line) :]


def _result(directory: Path) -> Any:
    """Reads the result that the launcher has written; None if there is none."""
    try:
        return json.loads((directory / "result.json").read_bytes())
    except (OSError, ValueError):
        return None


def _obey(commands: Iterator[bytes], launcher: subprocess.Popen[bytes], guardian: Guardian) -> None:
    for command in commands:
        if command.startswith(b"signal "):
            launcher.send_signal(int(command.split()[1]))
        elif command == b"end\n":
            break
        elif command == b"kill\n":
            guardian.end_all()
            return
    launcher.send_signal(signal.SIGTERM)
    over = threading.Timer(_GRACE_S, guardian.end_all)
    over.daemon = True
    over.start()
    # A `kill` does not wait for the grace. The end of the commands changes nothing any more.
    if b"kill\n" in commands:
        guardian.end_all()


def _commands() -> Iterator[bytes]:
    """Yields the lines of the standard input, until it ends or is silent for too long."""
    held = b""
    while select.select([0], [], [], _SILENCE_S)[0] and (chunk := os.read(0, _CHUNK_BYTES)):
        *lines, held = (held + chunk).split(b"\n")
        yield from (line + b"\n" for line in lines)


if __name__ == "__main__":
    main()
