"""The attempts of a trial that a Python program executes with workers of its own: it does what an agent does elsewhere.

The program holds the attempt's lock, has its workers' output kept in the attempt's log, and records how it has ended.
The attempts are decided in the same place as agents' attempts. `core_sdk.train` and `core_sdk.sgd` both drive trials.
"""

from __future__ import annotations

import logging
import signal
import time
from pathlib import Path

from core_sdk._ground.alive import AliveLock
from core_sdk._ground.environment import (
    Environment,
    command_of_this_process,
    is_script,
    job,
    leave_job,
    main_script,
    run_info,
)
from core_sdk._ground.error_lines import ending_in_error_line
from core_sdk._ground.exiting import ProgramExit
from core_sdk._ground.placement import named_job
from core_sdk._ground.records import ClusterInfo, ExitRecord, check_name
from core_sdk._home import Home, TrialFolder
from core_sdk._home.attempts.ending import end_attempt, goes_back
from core_sdk._home.attempts.jobs import note_trial_of_job, trial_of_job
from core_sdk._home.attempts.restarts import has_begun, next_info
from core_sdk._home.attempts.run_info import names_trial
from core_sdk._home.attempts.starting import AttemptStart, begin, resume
from core_sdk._home.pushes import have_pushed, workspace_address
from core_sdk._home.states import TRY_AGAIN
from core_sdk.errors import JoinError

logger = logging.getLogger("core_sdk.agent")

# A command starts the whole program, so it can only resume the program's first trial.
_driven: list[int] = []


class DrivenTrial:
    """A trial of this program, and the attempt of it that runs.

    Where the program itself is the command of an attempt, under an agent, it is that attempt's trial. Then the agent
    holds the lock and keeps the output of the program, which includes the workers' output.
    """

    def __init__(
        self, folder: TrialFolder, info: ClusterInfo, start: AttemptStart | None, *, is_of_job: bool = False
    ) -> None:
        """`start` is None if an agent has started the attempt. A job (`is_of_job`) can start the program again."""
        self.folder = folder
        self.info = info
        """The cluster info that the ranks of the attempt get."""
        self._start = start
        # None if its stop does not say how the program exits.
        self._program = ProgramExit.watched() if is_of_job and is_script() else None
        if self._program is not None:
            self._program.begin(folder.path)
        if self._lock is not None and folder.read_command() is not None:
            # The signature lets `trial kill` end this program. It has none if a person types into it.
            self._lock.sign()
        _driven.append(folder.trial_id)
        have_pushed(folder, workspace_address(None))

    @classmethod
    def begin(
        cls,
        *,
        name: str | None = None,
        num_slots: int | None = None,
        job_id: str | None = None,
        trial_id: int | None = None,
    ) -> DrivenTrial:
        """Returns a trial that this program executes, with the attempt that is to run.

        It is the trial for which this program was started, or the one with `trial_id`, or that which an earlier start
        of its job has begun, or a new one in the experiment `name`, by default the name of the script.

        Raises `HomeNotWritableError`, `InvalidNameError`, `AttemptError` for a run info that cannot be used or if an
        earlier start of the job still runs, `UnknownWorkspaceError` for a CORE_SDK_SERVER that is the name of no login,
        or `JoinError` on each of several nodes that the trial has.
        """
        home = Home.create(Environment.read().home)
        told = run_info()
        if told is not None and (num_nodes := len(told.container_addrs)) > 1:
            raise JoinError(
                f"this trial has {num_nodes} nodes, and on each this program would start workers of its own. Start it "
                "with `python -m launch.torch_distributed -- python train.py`: its ranks are the workers then. Or give "
                'the trial no slots, and let the program itself ask Ray for its workers (engine="ray").'
            )
        if names_trial(told) and not has_begun(home, told):
            return cls(home.trial(told.trial.trial_id), told, None)
        named = None if job_id is None else named_job(check_name("job_id", job_id))
        given = named or job()
        earlier = trial_id or trial_of_job(home, given, None if named else main_script())
        if earlier is not None:
            start = resume(home.trial(earlier), is_again=True, is_here=True)
        else:
            argv = None if _driven else command_of_this_process()
            start = begin(home.root, argv, name=name, num_slots=num_slots)
        note_trial_of_job(start.folder, named)
        leave_job()
        return cls(start.folder, start.info, start, is_of_job=given is not None)

    @property
    def attempt(self) -> int:
        return self.info.trial.attempt

    @property
    def run_info_path(self) -> Path:
        return self.folder.run_info_path(self.attempt).absolute()

    @property
    def log_path(self) -> Path | None:
        """The file for the output of the workers; None if an agent keeps the output of this program."""
        return None if self._start is None else self.folder.log_path(self.attempt)

    def withdraw(self) -> None:
        """Withdraws the attempt, of which nothing has run; a new trial is removed."""
        if self._start is not None:
            self._start.withdraw()

    def end(self, code: int, reason: str = "") -> None:
        """Records how the attempt has ended, as the exit status of a command would say, and why, if it has failed."""
        if self._lock is not None:
            for problem in end_attempt(self.folder, self.attempt, self._lock, code, reason):
                logger.warning("%s", problem)
        elif code:  # the agent records the end, and adopts the reason
            self.folder.write_exit(self.attempt, ExitRecord(time=time.time(), code=code, reason=reason))

    def end_stopped(self) -> None:
        """Records that the attempt has stopped as asked. A job's program then exits with the status for that."""
        self.end(0)
        if self._program is not None:
            self._program.replace(TRY_AGAIN, self.folder.path)

    @property
    def is_going_back(self) -> bool:
        """Whether a guard lets the trial go back: another attempt follows the one that has stopped."""
        return goes_back(self.folder, None)

    def end_by(self, error: BaseException | None) -> None:
        """Records that the attempt has ended, as a program does that does not catch this error."""
        match error:
            case None | SystemExit(code=None):
                code = 0
            case KeyboardInterrupt():
                code = -signal.SIGINT
            case SystemExit(code=int(status)):
                code = status
            case _:
                code = 1
        self.end(code, ending_in_error_line(f"{type(error).__name__}: {error}") if code > 0 else "")

    def restart(self) -> None:
        """Begins the next attempt from the newest good checkpoint, after `end`. Raises `NothingToResumeError`."""
        if self._start is None:
            # The agent holds the trial until this program ends.
            self.info = next_info(self.folder, self.info)
            self.folder.write_run_info(self.attempt, self.info, overwrite=False)
        else:
            self._start = resume(self.folder, is_again=True, is_here=True)
            self.info = self._start.info
            if self._start.command is not None:
                self._start.lock.sign()

    @property
    def _lock(self) -> AliveLock | None:
        return None if self._start is None else self._start.lock
