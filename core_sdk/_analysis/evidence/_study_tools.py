"""Tools of the Model Context Protocol for studies: the commands of the command line, with their words and their errors.

A tool starts the command, so that both always do the same. What it prints on stdout is the answer. Where that is empty
and the command has failed, the client gets what it says on stderr, as an error.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from core_sdk._analysis.evidence._bounds import MOST_BYTES, bounded
from core_sdk._analysis.evidence._mcp_sdk import MCPServer, ToolAnnotations, ToolError

_READS = ToolAnnotations(read_only_hint=True)
_ENDS = {1: "a trial has failed", 75: "it was stopped", 124: "it goes on: `wait` waits for it"}
_MOST_WAIT_S = 50
"""Clients give up after a minute."""


def add_study_tools(server: MCPServer, *, can_write: bool) -> None:
    """Adds the tools of studies. Without `can_write` they only read."""

    async def board(study: str = "") -> str:
        """Show a study in 2 KB: what is best, and of each try its value, its spread and its difference to the parent.

        Without `study` it is the one that was begun in the directory of this server.
        """
        return await _answer("board", *_given(study))

    async def wait(try_ids: Sequence[int] = (), any_is_enough: bool = False, seconds: int = 45, study: str = "") -> str:
        """Wait for tries to end, at most 50 seconds; return a line for each that has. Without ids: for all of them."""
        options = ["--any"] if any_is_enough else []
        timeout = f"{max(1, min(seconds, _MOST_WAIT_S))}s"
        return await _answer("wait", *map(str, try_ids), *options, "--timeout", timeout, *_option("--study", study))

    async def code(try_id: int, diff: int | None = None) -> str:
        """Show which code a try has run, and its difference to its parent's, or to that of the try `diff`."""
        return await _answer("code", str(try_id), *_option("--diff", diff))

    async def logs(trial_id: int, num_lines: int = 40) -> str:
        """Show the last lines that a trial has printed."""
        return await _answer("trial", "logs", str(trial_id), "--tail", str(num_lines), is_end_kept=True)

    async def compare(trial_ids: Sequence[int]) -> str:
        """Show hyperparameters and last metrics of trials side by side, what differs first."""
        return await _answer("compare", *map(str, trial_ids))

    for reads in (board, wait, code, logs, compare):
        server.add_tool(reads, annotations=_READS, structured_output=False)
    if can_write:
        _add_writing(server)


def _add_writing(server: MCPServer) -> None:
    async def try_code(
        hypothesis: str,
        directory: str,
        command: Sequence[str] = (),
        parent: int | None = None,
        seeds: int | None = None,
        hparams: Sequence[str] = (),
        again: bool = False,
        stop_if_behind: bool = False,
        author: str = "",
        study: str = "",
        seconds: int = 45,
    ) -> str:
        """Try the code of a directory as it is now, with several seeds; return what it was worth after `seconds`.

        `directory` is an absolute path in which a study was begun (`core-sdk study begin`). `command` is that of the
        study if it is empty. `hparams` are such as `lr=0.1`. What was tried already is named, and needs `again`.
        """
        if not (Path(directory).is_absolute() and Path(directory).is_dir()):
            raise ToolError(f"{directory!r} is no absolute path of a directory")
        options = [
            *_option("--parent", parent),
            *_option("--seeds", seeds),
            *(word for each in hparams for word in ("--hparam", each)),
            *(["--again"] if again else []),
            *(["--stop-if-behind"] if stop_if_behind else []),
            *_option("--author", author),
            *_option("--study", study),
            *("--timeout", f"{max(1, min(seconds, _MOST_WAIT_S))}s"),
        ]
        return await _answer("try", hypothesis, *options, *(["--", *command] if command else []), cwd=directory)

    async def verdict(try_id: int, decision: str, why: str) -> str:
        """Decide about a try: `keep`, so that the next ones vary it, or `discard`, with the reason."""
        if decision not in ("keep", "discard"):
            raise ToolError(f"a decision is keep or discard, not {decision[:40]!r}")
        return await _answer(decision, str(try_id), why)

    async def stop(trial_id: int) -> str:
        """Ask a running trial to save a checkpoint and stop."""
        return await _answer("trial", "pause", str(trial_id))

    async def kill(trial_id: int) -> str:
        """Kill a trial with all its processes, at once."""
        return await _answer("trial", "kill", str(trial_id))

    async def resume(trial_id: int) -> str:
        """Start the next attempt of a trial that has stopped, from its newest checkpoint, in the background."""
        return await _answer("trial", "resume", str(trial_id), "--detach")

    async def continue_trial(trial_id: int) -> str:
        """Start a new trial, in the background, that begins with the newest checkpoint of this one."""
        return await _answer("trial", "continue", str(trial_id), "--detach")

    for writes in (try_code, verdict, stop, kill, resume, continue_trial):
        server.add_tool(writes, structured_output=False)


async def _answer(*arguments: str, cwd: str | None = None, is_end_kept: bool = False) -> str:
    """Returns what the command prints, as much as an answer holds. Raises `ToolError` with what it says otherwise."""
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "core_sdk._interfaces.cli", *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    told = ended.stdout.strip()
    if ended.returncode and not told and ended.returncode not in (75, 124):
        said = ended.stderr.strip().split("\n")
        raise ToolError(bounded(MOST_BYTES - 200, [line.removeprefix("core-sdk: ") for line in said]))
    end = _ENDS.get(ended.returncode, f"status {ended.returncode}") if ended.returncode else ""
    room = MOST_BYTES - len(end.encode()) - 3
    text = bounded(room, (told or ended.stderr.strip()).split("\n"), is_end_kept=is_end_kept)
    return f"{text}\n({end})" if end else text


def _given(text: str) -> list[str]:
    return [text] if text else []


def _option(name: str, value: object) -> list[str]:
    return [] if value in (None, "") else [name, str(value)]
