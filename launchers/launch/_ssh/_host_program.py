"""Becomes the launcher on one host, as requested by a head on another host.

This file is started by its path, by ssh or as a child of the head, needs the standard library only, and becomes the
launcher. The first line of its standard input is the job. The others are commands, which the launcher obeys (`_link`).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path


def main() -> None:
    # Without a buffer, which would take the commands too.
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        job = json.loads(stdin.readline() or b"null")
    if job is None:
        return
    try:
        os.chdir(job["directory"])
    except OSError as error:
        reason = f"the working directory {job['directory']} cannot be entered there: {error.strerror}"
        os.write(2, job["mark"].encode() + json.dumps({"refused": reason}).encode() + b"\n")
        return
    directory = Path(tempfile.mkdtemp(prefix="core-sdk-launch-"))
    run_info = directory / "head_run.json"
    run_info.touch(mode=0o600)
    run_info.write_text(job["run_info"])
    told = {"CORE_SDK_RUN_INFO": str(run_info), "CORE_SDK_HEAD": f"{job['mark']}{directory}"}
    # -P keeps the working directory out of the path, since the user may have a `launch.py` there.
    command = [sys.executable, "-P", "-m", job["module"], *job["arguments"]]
    os.execve(sys.executable, command, {**os.environ, **job["variables"], **told})


if __name__ == "__main__":
    main()
