"""Slurm's commands as programs that answer what a test tells them, for states that a real Slurm reaches rarely."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

# Lines of the file `jobs` are ID|STATE|REASON|NODES, as `squeue` lists them. Each call is noted in the file `calls`.
_COMMANDS: Mapping[str, str] = {
    "squeue": '[ -e "$place/squeue-knows-nothing" ] || cat "$place/jobs"',
    "sacct": 'echo "sacct: error: Slurm accounting storage is disabled" >&2; exit 1',
    "scontrol": """\
for id; do :; done
line=$(grep "^$id|" "$place/jobs") || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }
IFS='|' read -r id state reason nodes <<END
$line
END
echo "JobId=$id JobState=$state Reason=${reason:-None} NodeList=${nodes:-(null)}\"""",
    "scancel": """\
for id; do :; done
sed -i "s/^$id|[A-Z_]*|/$id|CANCELLED|/" "$place/jobs\"""",
    "sbatch": """\
id=$(($(wc -l < "$place/jobs") + 7))
echo "$id|PENDING|Priority|" >> "$place/jobs"
echo "$id\"""",
    "sinfo": 'echo "all*|(null)"',
}


class ToldSlurm:
    """What the commands answer."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._place = place
        self._jobs: dict[str, str] = {}
        for name, text in _COMMANDS.items():
            command = place / name
            command.write_text(f'#!/bin/sh\nplace={place}\necho "{name} $*" >> "$place/calls"\n{text}\n')
            command.chmod(0o755)
        (place / "jobs").touch()
        (place / "calls").touch()
        monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")

    def tell(self, job_id: str, state: str, reason: str = "") -> None:
        """Lets the job be in this state; in an empty one Slurm has forgotten it."""
        self._jobs[job_id] = f"{job_id}|{state}|{reason}|h1\n" if state else ""
        (self._place / "jobs").write_text("".join(self._jobs.values()))

    def keep_list_empty(self) -> None:
        """Lets `squeue` answer without any job, as a site's kept answer may."""
        (self._place / "squeue-knows-nothing").touch()

    def refuse(self, command: str) -> None:
        """Lets a command fail, as where it may not be used."""
        (self._place / command).write_text(f'#!/bin/sh\necho "{command}: error: Access denied" >&2\nexit 1\n')

    @property
    def calls(self) -> list[str]:
        return (self._place / "calls").read_text().splitlines()

    @property
    def states(self) -> dict[str, str]:
        """The states of jobs by id."""
        lines = (self._place / "jobs").read_text().splitlines()
        return dict(line.split("|")[:2] for line in lines)
