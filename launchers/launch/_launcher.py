"""The main program of all launchers, from the command line to the exit status.

The exit status comes from the rank that failed first, which the last messages name. One process per node starts and
watches the ranks.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

from msgspec.structs import replace

from core_sdk._ground.environment import LaunchSettings
from core_sdk._ground.environment.names import GRACE_VARIABLE
from core_sdk._machine.processes import STOPS, CaughtSignals, Failed, RankGrace, Supervisor, block_usr1
from core_sdk._machine.processes.output import RankOutput
from core_sdk.errors import CoreSDKError, MissingDependencyError
from launch._command_line import CommandLineError, HelpWanted, check_script, help_text
from launch._directory import LaunchDirectory
from launch._framework import Framework, Launch
from launch._result import LaunchResult, describe_stopping, marked, result_before_start, result_of, say
from launch._ssh import _head
from launch._ssh._link import HeadLink
from launch._torchrun import _engine
from launch._torchrun._nodes import find_nodes, write_run_info
from launch._torchrun._options import parse_options

_USAGE = 2
_FAILURE = 1


def run(framework: Framework) -> NoReturn:
    """Runs a launcher's main program, and ends the process."""
    code = launch(framework, sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody reads it any more
            stream.flush()
    # Python's own end would wait for, or crash on, a thread that is still inside torch, for example waiting for nodes.
    os._exit(code)


def launch(framework: Framework, arguments: Sequence[str]) -> int:
    """Runs a launch and returns the exit status. For the main thread of a process that ends with it."""
    head = HeadLink.of_process()
    try:
        command = framework.command(arguments)
        check_script(command.script)
        settings = LaunchSettings.read()
        plan = framework.plan(command.overrides)
        hosts = _head.hosts_to_reach(plan)
    except HelpWanted:
        print(help_text(framework.module, framework.overridden, framework.options_text()), flush=True)
        return 0
    except (CommandLineError, CoreSDKError, ValueError) as error:
        return _report(head, _result_of_error(error, _USAGE))
    try:
        directory = LaunchDirectory(None if head is None else head.directory)
    except OSError as error:
        message = f"the private directory of the launch cannot be made: {error}"
        return _report(head, LaunchResult(_FAILURE, (message,)))
    signals = CaughtSignals(is_usr1_stop=settings.is_usr1_stop)
    if head is not None:
        head.obey(directory.guardian)
    with directory:
        started = Launch(framework, command, plan, settings, directory, signals)
        try:
            result = _launch_here(started) if hosts is None else _head.run(started, hosts)
        except CommandLineError as error:
            result = _result_of_error(error)
    signals.wait_for(lambda: _report(head, result, signals.is_stop_asked))
    return result.code


def _report(head: HeadLink | None, result: LaunchResult, is_hurried: threading.Event | None = None) -> int:
    """Reports the result to the head that has started this launcher, or else to the user. Returns its exit status.

    The head prints the messages of several nodes so that they can be told apart.
    """
    if head is None:
        say(result.messages, is_hurried)
    else:
        head.report(result)
    return result.code


def _launch_here(launch: Launch) -> LaunchResult:
    """Runs this node's part of the training."""
    directory, signals, settings = launch.directory, launch.signals, launch.settings
    with RankOutput(directory.path, is_hurried=signals.is_stop_asked) as output:
        grace = RankGrace(settings.grace_s, GRACE_VARIABLE)
        supervisor = Supervisor(directory.guardian, directory.statements, output, grace)
        # The main thread must be free to receive signals while nodes meet.
        engine = ThreadPoolExecutor(1, "launch-engine").submit(_run_engine, launch, supervisor, output)
        engine.add_done_callback(lambda _: signals.ring())
        _wait_for_end(engine, signals, supervisor, output)
        supervisor.kill()
        signals.wait_for(output.close)
    result = _result(supervisor, engine.exception() if engine.done() else None)
    if result.is_of_ranks and (trouble := directory.record_exit(result.code, result.reason)):
        result = replace(result, messages=(*result.messages, trouble))
    if isinstance(supervisor.decided, Failed) and settings.error_file:
        first = supervisor.decided.first
        with contextlib.suppress(OSError):  # torchrun's caller then has no file
            directory.statements.copy_error(first.rank, first.code or _FAILURE, Path(settings.error_file))
    if supervisor.may_have_left_ranks():
        directory.abandon()
    return result


def _run_engine(launch: Launch, supervisor: Supervisor, output: RankOutput) -> None:
    if launch.settings.is_usr1_stop:
        block_usr1()
    if importlib.util.find_spec("torch") is None:
        raise CommandLineError(
            str(MissingDependencyError("torch", "torch", f"{launch.framework.module} with {sys.executable}"))
        )
    options = parse_options(launch.plan.torchrun)
    nodes = find_nodes(options)
    write_run_info(nodes, launch.directory.path)
    _engine.run(launch, options, nodes, supervisor, output)


def _wait_for_end(engine: Future[None], signals: CaughtSignals, supervisor: Supervisor, output: RankOutput) -> None:
    """Blocks until the engine has ended, or there is nothing more that it could do. Says what a stop waits for."""
    while not engine.done():
        number = signals.wait(supervisor.time_left_s())
        if number is None and not supervisor.kill_late():
            return
        if number and supervisor.hand_on(number):
            return
        if number in (None, *STOPS) and (stopping := supervisor.stopping()) is not None:
            output.say(marked([describe_stopping(stopping)]))


def _result(supervisor: Supervisor, error: BaseException | None) -> LaunchResult:
    """Returns the result of the launch. `error` is what the engine raised."""
    if (outcome := supervisor.decided or supervisor.killed) is not None:
        return result_of(outcome, supervisor.num_ranks, socket.gethostname())
    if supervisor.stop_signal is not None:
        return result_before_start(supervisor.stop_signal)
    if error is None:
        return LaunchResult(0, ("the training was over before this node could take part",))
    return _result_of_error(error)


def _result_of_error(error: BaseException, code_of_value_error: int | None = None) -> LaunchResult:
    """Returns the result of a launch that `error` has ended.

    A `ValueError` without a code is a fault of the launcher itself.
    """
    match error:
        case CommandLineError():
            return LaunchResult(error.exit_code, (str(error),))
        case ValueError() if code_of_value_error is not None:
            return LaunchResult(code_of_value_error, (str(error),))
        case CoreSDKError():
            return LaunchResult(_FAILURE, (str(error),))
        case _:
            lines = "".join(traceback.format_exception(error)).splitlines()
            return LaunchResult(_FAILURE, ("the launcher itself failed:", *lines))
