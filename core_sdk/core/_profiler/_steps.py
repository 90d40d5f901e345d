"""Traces a few steps of a running training with torch's profiler, when `core-sdk trial profile` asks for it."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

from core_sdk._ground.ownership import make_directory
from core_sdk._home import TrialFolder
from core_sdk._home.profiles import ProfileRequest, answer, read_request
from core_sdk.core._preempt import PreemptContext

logger = logging.getLogger("core_sdk.profiler")

_POLL_S = 1.0


class StepProfiler:
    """Looks for requests in a thread, and traces in the thread that calls `should_preempt()`. Only rank 0 has one."""

    def __init__(self, folder: TrialFolder, attempt: int) -> None:
        self._folder = folder
        self._attempt = attempt
        self.preempt: PreemptContext | None = None
        """Set once the Context is made."""
        self._request: ProfileRequest | None = None
        self._profile: Any = None
        self._num_left = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="core-sdk-profiles", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends a trace that is under way with the steps that it has."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._profile is not None:
            self._end()

    def _watch(self) -> None:
        while not self._closing.wait(_POLL_S):
            try:
                request = read_request(self._folder, self._attempt)
            except OSError:  # the home is away
                continue
            if request is None or request == self._request:
                continue
            self._request = request
            if "torch" not in sys.modules:
                answer(self._folder, self._attempt, request, problem="the script has not imported torch")
            elif self.preempt is not None:
                self._num_left = request.num_steps + 1  # the first call only begins
                self.preempt.on_step = self._step

    def _step(self) -> None:
        """Called at each `should_preempt()`, between two steps, until the trace is complete."""
        try:
            if self._profile is None:
                self._begin()
            else:
                self._profile.step()
            self._num_left -= 1
            if self._num_left == 0:
                self._end()
        except Exception as error:  # noqa: BLE001 - whatever torch's profiler has must not end a training
            self._give_up(f"{type(error).__name__}: {error}")

    def _begin(self) -> None:
        import torch.profiler

        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        profile = torch.profiler.profile(activities=activities)
        profile.start()
        self._profile = profile

    def _end(self) -> None:
        profile, self._profile, request = self._profile, None, self._request
        if self.preempt is not None:
            self.preempt.on_step = None
        if request is None:
            return
        profile.stop()
        directory = self._folder.profiles_path
        make_directory(directory, exist_ok=True)
        path = directory / f"{self._attempt}-{request.identity}.json.gz"
        profile.export_chrome_trace(str(path))
        answer(self._folder, self._attempt, request, path=path)
        logger.info("%d steps were traced: %s", request.num_steps, path)

    def _give_up(self, problem: str) -> None:
        self._profile = None
        if self.preempt is not None:
            self.preempt.on_step = None
        if self._request is not None:
            answer(self._folder, self._attempt, self._request, problem=problem)
        logger.warning("the steps could not be traced: %s", problem)
