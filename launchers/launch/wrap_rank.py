"""`python -m launch.wrap_rank RANK [--] COMMAND…`: a command, each line of whose output begins with `[rank=N]`.

RANK is a number, or names of variables with commas between them, of which the first that is set holds it. It is for
ranks that something else starts, such as mpirun; the launchers prefix the lines of their ranks themselves.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from core_sdk._ground.environment import first_variable
from core_sdk._machine.processes import STOPS, CaughtSignals, RankProcesses, exit_code, signal_name
from core_sdk._machine.processes.output import RankOutput
from launch._command_line import CommandLineError, OptionParser, UsageError
from launch._directory import LaunchDirectory
from launch._rank_process import start_rank
from launch._result import marked, say

# Processes that the command leaves behind may keep its output open.
_LAST_OUTPUT_S = 2.0
_POLL_S = 0.05


def main() -> NoReturn:
    try:
        rank, command = _parse(sys.argv[1:])
        code = _run(rank, command)
    except CommandLineError as error:
        say([str(error)])
        code = error.exit_code
    os._exit(code)  # without waiting for a thread that waits for a reader


def _parse(arguments: Sequence[str]) -> tuple[int, list[str]]:
    parser = OptionParser(prog="python -m launch.wrap_rank", description=__doc__, allow_abbrev=False)
    # Determined's option. A command's output is never redirected here.
    parser.add_argument("--no-redirect-stdio", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("rank", metavar="RANK")
    parser.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        raise UsageError("there is nothing to start: a command is missing behind the rank")
    return _rank_of(given.rank), command


def _rank_of(text: str) -> int:
    value = text if text.isdecimal() else first_variable(text.split(","))
    if value is None or not value.isdecimal():
        raise CommandLineError(f"which rank is this? {text} is neither a number nor a variable that holds one")
    return int(value)


def _run(rank: int, command: Sequence[str]) -> int:
    signals = CaughtSignals()
    with LaunchDirectory() as directory, RankOutput(directory.path, is_hurried=signals.is_stop_asked) as output:
        # Kept until the end, since a `Popen` that nobody holds reaps its process.
        process = start_rank(command, output.open(rank), directory.mark.variables)
        ranks = RankProcesses(directory.guardian, output)
        ranks.add(rank, process.pid)
        while ranks.running():
            if number := signals.wait(_POLL_S):
                ranks.signal(number)
                if number in STOPS:
                    output.say(marked([f"{signal_name(number)} was handed on: waiting for rank {rank} to end"]))
        output.wait_for_end(rank, _LAST_OUTPUT_S)
        signals.wait_for(output.close)
        return exit_code(process.wait())


if __name__ == "__main__":
    main()
