"""A training's part on one host: starts the launcher there, by the words of a head that is elsewhere.

A process of its own, started by this file's path, by ssh or as a child; it imports the standard library only. The
first line of its standard input is the job. The others are words: `signal N` for the launcher, `end`, `kill`, and
`alive`, by which the head shows that it is. When they end, or do not come for a minute, the head is dead, and then the
ranks are ended as with `end`: SIGTERM, a short grace, and a kill of all that is left. What it has to tell the head
itself stands between the launcher's lines on stderr, each behind the job's mark.

Should it be killed itself, a guardian ends the training here and removes its files. Its only argument is the path of
the guardian's file, since it does not see the packages of this Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core_sdk.processes import Guardian

_RUN_INFO_VARIABLE = "CORE_SDK_RUN_INFO"
_ENDING_VARIABLE = "CORE_SDK_ENDING"
_SILENCE_S = 60.0
_GRACE_S = 10.0
_CHUNK_BYTES = 1 << 16


def main() -> None:
    words = _words()
    job = json.loads(next(words, b"null"))
    if job is None:
        return
    head = Head(job["mark"])
    try:
        os.chdir(job["directory"])
    except OSError as error:
        head.tell(refused=f"the working directory {job['directory']} cannot be entered there: {error.strerror}")
        return
    directory = Path(tempfile.mkdtemp(prefix="core-sdk-node-"))
    # All that the launcher starts inherits it as it is; the ranks' run info is another one than the launcher's.
    last_words = f"{os.getpid()}:{directory / 'ending.json'}"
    guardian: Guardian = runpy.run_path(sys.argv[1])["Guardian"](directory, f"{_ENDING_VARIABLE}={last_words}")
    try:
        _run(job, words, head, directory, guardian, last_words)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        guardian.dismiss()


class Head:
    def __init__(self, mark: str) -> None:
        self._mark = mark.encode()

    def tell(self, **record: Any) -> None:
        line = self._mark + json.dumps(record).encode() + b"\n"
        with contextlib.suppress(OSError):  # it is gone
            while line:
                line = line[os.write(2, line) :]


def _run(
    job: dict[str, Any], words: Iterator[bytes], head: Head, directory: Path, guardian: Guardian, last_words: str
) -> None:
    launcher = _start(job, directory, last_words)
    guardian.guard(launcher.pid)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, _hand_on_to(launcher))
    head.tell(started=socket.gethostname())
    threading.Thread(target=_obey, args=(words, launcher, guardian), daemon=True).start()
    code = launcher.wait()
    head.tell(ended=code, ending=_ending(directory))


def _start(job: dict[str, Any], directory: Path, last_words: str) -> subprocess.Popen[bytes]:
    run_info = directory / "run_info.json"
    run_info.touch(mode=0o600)
    run_info.write_text(job["run_info"])
    told = {_RUN_INFO_VARIABLE: str(run_info), _ENDING_VARIABLE: last_words}
    return subprocess.Popen(
        # Without the working directory in its path, where a `launch.py` of the user's may lie.
        [sys.executable, "-P", "-m", job["module"], *job["arguments"]],
        env=os.environ | job["variables"] | told,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def _hand_on_to(launcher: subprocess.Popen[bytes]) -> Any:
    def hand_on(number: int, frame: FrameType | None) -> None:
        launcher.send_signal(number)

    return hand_on


def _ending(directory: Path) -> Any:
    """None if the launcher could not say it."""
    try:
        return json.loads((directory / "ending.json").read_bytes())
    except (OSError, ValueError):
        return None


def _obey(words: Iterator[bytes], launcher: subprocess.Popen[bytes], guardian: Guardian) -> None:
    for word in words:
        if word.startswith(b"signal "):
            launcher.send_signal(int(word.split()[1]))
        elif word == b"end\n":
            break
        elif word == b"kill\n":
            guardian.end_all()
            return
    launcher.send_signal(signal.SIGTERM)
    over = threading.Timer(_GRACE_S, guardian.end_all)
    over.daemon = True
    over.start()
    # A `kill` does not wait for the grace. More silence says nothing new.
    if b"kill\n" in words:
        guardian.end_all()


def _words() -> Iterator[bytes]:
    """Lines of the standard input, until it ends or is silent for too long."""
    held = b""
    while select.select([0], [], [], _SILENCE_S)[0] and (chunk := os.read(0, _CHUNK_BYTES)):
        *lines, held = (held + chunk).split(b"\n")
        yield from (line + b"\n" for line in lines)


if __name__ == "__main__":
    main()
