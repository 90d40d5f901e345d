"""From a launcher's command line to its exit status, whatever the framework.

A launcher is torchrun with another ending: the exit status is that of the rank that failed first, which the last words
name. One process per node starts and watches the ranks.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import NoReturn

from core_sdk.environment import LaunchSettings, ending_path
from core_sdk.errors import CoreSDKError
from core_sdk.processes import CaughtSignals, Supervisor, block_usr1
from core_sdk.processes.output import RankErrors, RankOutput
from launch._command_line import Command, CommandError, HelpWanted, check_script, help_text, parse
from launch._directory import LaunchDirectory
from launch._framework import Framework
from launch._messages import say
from launch._result import Ending, ending_before_start, ending_of
from launch._run_info import tell_ranks
from launch._ssh import _head
from launch._ssh._head import spread_of
from launch._ssh._hostfile import Spread
from launch._torchrun._nodes import find_nodes, torchrun_argv

_USAGE = 2
_FAILURE = 1


def run(framework: Framework) -> NoReturn:
    """A launcher's main program."""
    code = launch(framework, sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody reads it any more
            stream.flush()
    # Python's own end would wait for, or crash on, a thread that is still inside torch: waiting for nodes, say.
    os._exit(code)


def launch(framework: Framework, arguments: Sequence[str]) -> int:
    """The exit status. For the main thread of a process that ends with it."""
    try:
        command = parse(arguments, framework.own_options)
        check_script(command.script)
        settings = LaunchSettings.read()
        spread = spread_of(framework, command)
    except HelpWanted:
        print(help_text(framework.module, framework.overridden), flush=True)
        return 0
    except CommandError as error:
        return _refuse(str(error), error.exit_code)
    except ValueError as error:
        return _refuse(str(error), _USAGE)
    except CoreSDKError as error:
        return _refuse(str(error), _FAILURE)
    try:
        directory = LaunchDirectory()
    except OSError as error:
        return _refuse(f"the launch has no place for its private directory: {error}", _FAILURE)
    signals = CaughtSignals(is_usr1_stop=settings.is_usr1_stop)
    with directory:
        if spread is None:
            ending = _launch(framework, command, settings, directory, signals)
        else:
            ending = _launch_on_hosts(framework, command, spread, settings, directory, signals)
    signals.wait_for(lambda: _leave_words(ending, signals.is_stop_asked))
    return ending.code


def _leave_words(ending: Ending, is_hurried: threading.Event | None = None) -> None:
    """To who placed this launcher, and tells the words of several nodes apart; else to the user."""
    path = ending_path()
    if path is None or not ending.leave(path):
        say(ending.words, is_hurried)


def _refuse(text: str, code: int) -> int:
    _leave_words(Ending(code, (text,)))
    return code


def _launch_on_hosts(
    framework: Framework,
    command: Command,
    spread: Spread,
    settings: LaunchSettings,
    directory: LaunchDirectory,
    signals: CaughtSignals,
) -> Ending:
    try:
        return _head.run(framework, command, spread, settings, directory, signals)
    except CommandError as error:
        return Ending(error.exit_code, (str(error),))


def _launch(
    framework: Framework,
    command: Command,
    settings: LaunchSettings,
    directory: LaunchDirectory,
    signals: CaughtSignals,
) -> Ending:
    with RankOutput(directory.path, is_hurried=signals.is_stop_asked) as output:
        errors = RankErrors(output)
        supervisor = Supervisor(directory.guardian, directory, errors, settings.grace_s)
        # Not in this thread, which must be free to hear signals while torch imports, gathers nodes, or waits for them.
        agent = ThreadPoolExecutor(1, "launch-agent").submit(
            _run, framework, command, output, errors, directory, supervisor, settings.is_usr1_stop
        )
        agent.add_done_callback(lambda _: signals.ring())
        _wait_for_end(agent, signals, supervisor)
        supervisor.kill()
        signals.wait_for(output.close)
    ending = _ending(supervisor, agent.exception() if agent.done() else None)
    if ending.is_of_ranks and ending.reason and (trouble := directory.record_exit(ending.code, ending.reason)):
        ending = replace(ending, words=(*ending.words, trouble))
    if supervisor.may_have_left_ranks():
        directory.abandon()
    return ending


def _run(
    framework: Framework,
    command: Command,
    output: RankOutput,
    errors: RankErrors,
    directory: LaunchDirectory,
    supervisor: Supervisor,
    is_usr1_stop: bool,
) -> None:
    if is_usr1_stop:
        block_usr1()
    command = replace(command, overrides=framework.torchrun_options(command.overrides))
    from launch._torchrun import _agent  # torch: more than a second, and nothing above needs it

    nodes = find_nodes(command)
    tell_ranks(nodes, directory.path)
    arguments = torchrun_argv(command, nodes, framework.prefix())
    _agent.run(arguments, framework, output, errors, directory, supervisor)


def _wait_for_end(agent: Future[None], signals: CaughtSignals, supervisor: Supervisor) -> None:
    """Of the agent, or until there is nothing more that it could do."""
    while not agent.done():
        number = signals.wait(supervisor.time_left_s())
        if number is None and not supervisor.kill_late():
            return
        if number and supervisor.hand_on(number):
            return


def _ending(supervisor: Supervisor, error: BaseException | None) -> Ending:
    if supervisor.decided is not None:
        return ending_of(supervisor.decided, supervisor.num_ranks, socket.gethostname())
    if supervisor.stop_signal is not None:
        return ending_before_start(supervisor.stop_signal)
    match error:
        case None:
            return Ending(0, ("the training was over before this node could take part",))
        case CommandError():
            return Ending(error.exit_code, (str(error),))
        case SystemExit(code=int(code)):
            return Ending(code)
        case CoreSDKError():
            return Ending(_FAILURE, (str(error),))
        case _:
            lines = "".join(traceback.format_exception(error)).splitlines()
            return Ending(_FAILURE, ("the launcher itself failed:", *lines))
