"""Remembers the contents of a home between the questions to a server."""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from core_sdk._analysis.charts.common_bins import JoinedMetric, read_common_bins
from core_sdk._analysis.charts.grouped_curves import Band, Centre, GroupedCurve, group_curve
from core_sdk._execution.experiments.calling import is_master_running
from core_sdk._execution.experiments.following import Follower
from core_sdk._execution.experiments.picture import SearchPicture, read_picture
from core_sdk._ground.lru_cache import LRUCache
from core_sdk._ground.records import SearcherMetric
from core_sdk._home import Home, View, open_view
from core_sdk._home.finding.facts import Facts, facts
from core_sdk._home.logs.lines import LogFilter, LogLines, LogPage
from core_sdk._home.media import HomeMedia
from core_sdk._home.rows import Bins, ExperimentRow, Marks, Outline, Reading
from core_sdk._home.storages import is_inside
from core_sdk._interfaces.server.errors import RequestError
from core_sdk._interfaces.server.feed import Feed
from core_sdk._workspace.actions.asker import present_asker
from core_sdk.errors import CoreSDKError, TrialNotFoundError

logger = logging.getLogger("core_sdk.server")

_T = TypeVar("_T")
_Answers = LRUCache[tuple[int, Hashable], tuple[str | None, Any]]
"""Answers about trials by the question, each with the mark that the trial had."""

# A look at 10^4 trials takes a fifth of a second of a processor that trains.
_LEAST_AGE_S = 0.5
_GREATEST_AGE_S = 1.0
"""The time for which questions are answered without a look that is due."""
_FIRST_PART_S = 0.25
_LONGEST_PART_S = 1.0
"""The times for which the first look reads before questions are answered; each is twice as long as the last."""
_PART_PAUSE_S = 0.02
_FULL_LOOK_S = 5.0
"""The time between looks at trials that have ended: they may be resumed, labelled or deleted."""
_NUM_REMEMBERED = 16
_ANSWERS_SIZE = 500_000
"""The values in answers that are remembered, some 200 bytes each: the buckets of 100 trials in a dozen charts."""
_LEAST_SIZE = 20
"""The values that an answer counts for besides its own."""
_NUM_SERIES = 2000
"""The answers about bins that are remembered: at most some 20 kB each, and often two for a series."""
_NUM_CURVES = 200
_TRIALS_AT_ONCE = 1000
_CLOSING_S = 2.0
_PAUSES = 3
"""The pause before the next look, in durations of the last one."""


@dataclass(frozen=True)
class Snapshot:
    """The trials and experiments of a home, as of one moment."""

    trials: Mapping[int, Facts] = field(default_factory=dict)
    experiments: Mapping[int, ExperimentRow] = field(default_factory=dict)
    _derived: dict[str, Any] = field(default_factory=dict)

    def trials_of(self, experiment_id: int) -> list[Facts]:
        return [one for one in self.trials.values() if one.row.experiment_id == experiment_id]

    def remember(self, name: str, derive: Callable[[], _T]) -> _T:
        """Returns what `derive` returns, which is called once. It must depend on the snapshot only."""
        if name not in self._derived:
            self._derived[name] = derive()
        derived: _T = self._derived[name]
        return derived


class _ClosingError(Exception):
    """The records are being closed, so that reading them ends."""


class SharedView:
    """Keeps one view open, from construction to `close`. Any thread may ask; one question is answered at a time.

    The first look begins at once, in a thread. It may take minutes in a home that nobody has looked at yet: until then
    `reading` says how far it is, and questions are answered from what was read so far. `wait` waits for its end.
    """

    def __init__(self, home: Home, *, can_act: bool = True, reaches_outside: bool = True) -> None:
        self.home = home
        self.media = HomeMedia(home)
        self._can_act = can_act
        self.reaches_outside = reaches_outside
        """Whether this server starts and ends trainings, and uses storages outside of the home."""
        self._stack = contextlib.ExitStack()
        self._lock = threading.Lock()
        """Guards the view."""
        self._look_lock = threading.Lock()
        self._opened: View | None = None
        self.feed = Feed()
        self._had_master: bool | None = None
        self._marks = Marks({}, {})
        self._snapshot = Snapshot()
        self._answers = _Answers(_ANSWERS_SIZE)
        self._known_bins = _Answers(_NUM_SERIES)
        self._known_curves = LRUCache[Hashable, tuple[Sequence[Bins], GroupedCurve]](_NUM_CURVES)
        self._searcher_metrics: dict[int, tuple[str | None, SearcherMetric | None]] = {}
        self._next_look = self._next_full_look = self._latest_look = 0.0
        self._log_lock = threading.Lock()
        self._logs = LRUCache[tuple[int, int], LogLines](_NUM_REMEMBERED)
        self._search_lock = threading.Lock()
        self._followers = LRUCache[int, Follower](_NUM_REMEMBERED)
        self.reading: Reading | None = Reading()
        """The progress of the first look; None once it has ended."""
        self._read_before = Reading()
        self._first_part = threading.Event()
        self._is_indexed = False
        """Whether the first look has read all journals; it then reads the index."""
        self._is_closing = False
        self._was_there = self._is_gone = False
        self._first_look = threading.Thread(target=self._look_first, name="core-sdk-first-look", daemon=True)
        self._first_look.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def wait(self) -> None:
        """Waits until all records have been read for the first time."""
        self._first_look.join()

    @property
    def has_part(self) -> bool:
        """Whether some records have been read, or the first look has ended."""
        return self._first_part.is_set()

    def close(self) -> None:
        self._is_closing = True
        self._first_look.join(_CLOSING_S)
        if self._first_look.is_alive():  # it waits for another process that reads the records, and ends with ours
            return
        with self._lock:
            self._stack.close()

    def ask(self, question: Callable[[View], _T]) -> _T:
        """Returns the answer from the records as of the last look, which is at most about two seconds old."""
        self._look_if_old()

        def ask() -> _T:
            with self._lock:
                return question(self._view)

        return self._found(ask)

    def ask_of_trial(
        self, trial_id: int, key: Hashable, question: Callable[[View], _T], size: Callable[[_T], int]
    ) -> _T:
        """Returns the answer as `ask` does, and remembers it for the same `key` until more is recorded of the trial.

        `size` returns the number of values in the answer, by which others are forgotten.
        """
        self._look_if_old()
        return self._found(
            lambda: self._remembered(self._answers, trial_id, key, question, lambda answer: _LEAST_SIZE + size(answer))
        )

    def _found(self, ask: Callable[[], _T]) -> _T:
        """Asks again after another look for a trial that is there: its link may be opened as soon as it has begun."""
        try:
            return ask()
        except TrialNotFoundError as error:
            if self.reading is not None or not self.home.folder(error.trial_id).exists():
                raise
        with self._look_lock:
            self._look()
        return ask()

    def outline(self, trial_id: int) -> Outline:
        """Returns what the trial has reported, without the values. A trial may have 10^5 metrics."""
        return self.ask_of_trial(
            trial_id, "outline", lambda view: view.outline(trial_id), size=lambda outline: len(outline.ranks)
        )

    def common_bins(self, trial_ids: Sequence[int], wanted: JoinedMetric) -> dict[int, Bins]:
        """Returns a metric of several trials in bins, and remembers each trial's bins until more is recorded of it."""

        def ask(trial_id: int, key: Hashable, question: Callable[[View], _T]) -> _T:
            return self._remembered(self._known_bins, trial_id, key, question)

        self._look_if_old()
        return read_common_bins(ask, trial_ids, wanted)

    def _remembered(
        self,
        answers: _Answers,
        trial_id: int,
        key: Hashable,
        question: Callable[[View], _T],
        size: Callable[[_T], int] = lambda _: 1,
    ) -> _T:
        with self._lock:  # for one question at a time, so that others are answered in between
            mark = self._marks.trials.get(trial_id)
            known = answers.get((trial_id, key))
            if known is None or known[0] != mark:
                found = question(self._view)
                known = answers.put((trial_id, key), (mark, found), size(found))
            answer: _T = known[1]
            return answer

    def group_curve(self, members: Sequence[Bins], centre: Centre, band: Band) -> GroupedCurve:
        """Returns the curve of a group, and remembers it as long as the same `bins` are remembered."""
        key = tuple(map(id, members)), centre, band
        with self._lock:
            known = self._known_curves.get(key)
        if known is not None:
            return known[1]
        curve = group_curve(members, centre, band)
        with self._lock:
            self._known_curves.put(key, (members, curve))  # with the members, so that no other bins can have their ids
        return curve

    def searcher_metric(self, experiment_id: int) -> SearcherMetric | None:
        """Returns the metric that an experiment has recorded, or None if there is none or it cannot be read."""
        mark = self._marks.experiments.get(experiment_id)
        known_mark, metric = self._searcher_metrics.get(experiment_id, (None, None))
        if mark is None or known_mark != mark:
            try:
                metric = self.home.experiment(experiment_id).read().searcher_metric
            except CoreSDKError:
                metric = None
            self._searcher_metrics[experiment_id] = mark, metric
        return metric

    def snapshot(self) -> Snapshot:
        self._look_if_old()
        return self._snapshot

    def chosen_trials(self, trial_ids: Sequence[int]) -> list[Facts]:
        """Returns these trials, each once. Raises `TrialNotFoundError` or `RecordDamagedError`."""

        def ask() -> list[Facts]:
            trials = self.snapshot().trials
            for trial_id in trial_ids:
                if trial_id not in trials:
                    self.home.trial(trial_id).read_record()
                    raise TrialNotFoundError(trial_id, self.home.root)
            return [trials[trial_id] for trial_id in dict.fromkeys(trial_ids)]

        return self._found(ask)

    def log_page(self, trial_id: int, attempt: int, first: int, limit: int, wanted: LogFilter) -> LogPage:
        """Returns lines of an attempt's output. The places of its lines are remembered for the latest attempts."""
        with self._log_lock:
            key = trial_id, attempt
            log = self._logs.get(key) or self._logs.put(key, LogLines(self.home, trial_id, attempt))
            return log.read(first, limit, wanted)

    def search_picture(self, experiment_id: int) -> SearchPicture:
        with self._search_lock:
            follower = self._followers.pop(experiment_id) or Follower(self.home, experiment_id)
            picture = read_picture(follower)  # if it fails, the next question reads from the beginning
            self._followers.put(experiment_id, follower)
            return picture

    def forget(self) -> None:
        """Lets the next question look at the records again, since an action of this server has just changed them."""
        with self._look_lock:
            self._next_look = self._next_full_look = self._latest_look = 0.0

    @property
    def can_act(self) -> bool:
        """Whether this server, and the one who asks the present request, may change records."""
        return self._can_act and present_asker().can_act

    def check_actions(self) -> None:
        """Raises `RequestError` if this server only reads, or the one who asks may only read."""
        if not self._can_act:
            raise RequestError(403, "read_only", "this server only reads", "It was started with --read-only.")
        if not self.can_act:
            raise RequestError(403, "read_only", "you may only read here")

    def check_reach(self, storage_url: str) -> None:
        """Raises `RequestError` for a storage outside of the home, if this server leaves those alone.

        Whoever records into the home could name one that only the server reaches.
        """
        if not self.reaches_outside and not is_inside(self.home, storage_url):
            words = "the files of this checkpoint are not in this workspace"
            raise RequestError(403, "storage_outside", words, "Download them where they are stored.")

    def check_home(self) -> None:
        """Raises `RequestError` if the home was there and is not any more: it was moved or removed."""
        if self._look_for_home():
            message = f"the home {self.home.root} is not there any more: it was moved or removed"
            raise RequestError(
                503, "home_gone", message, "Start `core-sdk ui` with CORE_SDK_HOME set to its new place."
            )

    def _look_for_home(self) -> bool:
        """Returns whether the home is gone. Open pages ask again when it goes and when it comes back."""
        is_there = self.home.root.is_dir()
        self._was_there |= is_there
        is_gone = self._was_there and not is_there
        if is_gone != self._is_gone:
            self.feed.add_everything()
        self._is_gone = is_gone
        return is_gone

    def look(self) -> float:
        """Looks at the records if that is due, and returns after how many seconds it is due again."""
        if self.reading is not None:
            return _LEAST_AGE_S
        with self._look_lock:
            if self._look_for_home():
                return _GREATEST_AGE_S
            if time.monotonic() >= self._next_look:
                self._look()
            return max(0.0, self._next_look - time.monotonic())

    def _look_first(self) -> None:
        within_s = _FIRST_PART_S
        try:
            while not self._look_at_part(within_s):
                self._first_part.set()
                self._read_before = self.reading or Reading()
                within_s = min(_LONGEST_PART_S, 2 * within_s)
                time.sleep(_PART_PAUSE_S)  # for questions, which would not get the lock
        except Exception as error:  # noqa: BLE001  (the next question looks again, and its answer tells the error)
            logger.debug("the first look at the records has failed: %s", error)
        finally:
            gc.freeze()  # each collection of garbage that looks at ten thousand trials would hold up all questions
            self.reading = None
            self._first_part.set()

    def _look_at_part(self, within_s: float) -> bool:
        with self._look_lock:
            return self._is_closing or self._look_for_home() or self._look(within_s)

    def _hear_progress(self, reading: Reading) -> None:
        if self._is_closing:
            raise _ClosingError
        if self.reading is not None:
            before = self._read_before
            num_trials = before.num_trials or reading.num_trials
            num_read = max(before.num_read, num_trials - reading.num_trials + reading.num_read)
            self.reading = Reading(num_read, num_trials, before.num_points + reading.num_points)

    @property
    def _view(self) -> View:
        assert self._opened is not None  # noqa: S101  (each question begins with a look)
        return self._opened

    def _look_if_old(self) -> None:
        """Looks at the records if the last look is too old. While a page is open, its event stream looks instead."""
        if self.reading is not None:
            self._first_part.wait()
        if self.reading is not None or time.monotonic() < self._latest_look:
            return
        with self._look_lock:
            if time.monotonic() >= min(self._latest_look, self._next_look):
                self._look()

    def _look(self, within_s: float | None = None) -> bool:
        """Looks at the records, and returns whether that was all; `within_s` reads the newest for about so long.

        Between the parts of a look the view is free for questions.
        """
        start = time.monotonic()
        is_full = start >= self._next_full_look
        with self._lock:
            if self._opened is None:
                view = open_view(self.home, self._hear_progress, self.media, reads=False)
                self._opened = self._stack.enter_context(view)
            if within_s is None:
                self._opened.refresh(only_open=not is_full)
            elif not self._is_indexed:
                self._is_indexed = self._opened.refresh_part(within_s)
            marks = self._opened.marks()
        trials, unread = self._read_trials(marks.trials, math.inf if within_s is None else within_s)
        is_whole = not unread and (within_s is None or self._is_indexed)
        if unread:
            marks = Marks({one: mark for one, mark in marks.trials.items() if one not in unread}, marks.experiments)
        if self.reading is not None and self._is_indexed:
            self.reading = Reading(len(trials), len(marks.trials) + len(unread), self.reading.num_points)
        touched = _differing(self._snapshot.trials, trials)
        experiments = self._read_experiments(trials, touched, marks.experiments)
        self._tell(trials, touched, experiments, marks.trials)
        if (trials, experiments) != (self._snapshot.trials, self._snapshot.experiments):
            self._snapshot = Snapshot(trials, experiments)  # a former one has what was derived from it
        self._marks = marks  # at last, since answers about the figures of the snapshot are remembered by them
        end = time.monotonic()
        self._next_look = end + max(_LEAST_AGE_S, _PAUSES * (end - start))
        self._latest_look = self._next_look + _GREATEST_AGE_S
        if is_full:
            self._next_full_look = end + max(_FULL_LOOK_S, 10 * (end - start))
        return is_whole

    def _read_trials(self, marks: Mapping[int, str], within_s: float) -> tuple[Mapping[int, Facts], Set[int]]:
        """Returns the facts of all trials, and the oldest ones that are left unread, if it takes more than `within_s`.

        The facts of a trial stay the same object unless they are read again, as does the mapping if none are.
        """
        known = self._snapshot.trials
        # No record says whether a process still lives.
        doubtful = self._snapshot.remember("active", lambda: _active(known)) & marks.keys()
        doubtful |= {trial_id for trial_id, mark in marks.items() if self._marks.trials.get(trial_id) != mark}
        doubtful |= marks.keys() - known.keys()
        if not doubtful and len(marks) == len(known):
            return known, set()
        unread, read = sorted(doubtful), dict[int, Facts]()
        deadline = time.monotonic() + within_s
        while unread and (not read or time.monotonic() < deadline):
            read |= {one.row.trial_id: one for one in self._read_facts(unread[-_TRIALS_AT_ONCE:])}
            del unread[-_TRIALS_AT_ONCE:]
        return {one: read.get(one) or known[one] for one in marks if one in read or one in known}, set(unread)

    def _read_facts(self, trial_ids: Sequence[int]) -> list[Facts]:
        with self._lock:
            figures = self._view.figures(trial_ids)
            rows = self._view.trials(trial_ids=trial_ids)
        return [facts(row, figures.get(row.trial_id, {})) for row in rows]

    def _read_experiments(
        self, trials: Mapping[int, Facts], touched: Set[int], marks: Mapping[int, str]
    ) -> dict[int, ExperimentRow]:
        known, before = self._snapshot.experiments, self._snapshot.trials
        found = (of_look.get(trial_id) for trial_id in touched for of_look in (before, trials))
        doubtful = {one.row.experiment_id for one in found if one is not None} & marks.keys()
        doubtful |= {
            experiment_id for experiment_id, mark in marks.items() if self._marks.experiments.get(experiment_id) != mark
        }
        with self._lock:
            read = {row.experiment_id: row for row in self._view.experiments(doubtful)} if doubtful else {}
        return {one: read.get(one) or known[one] for one in marks if one in read or one in known}

    def _tell(
        self,
        trials: Mapping[int, Facts],
        touched: Set[int],
        experiments: Mapping[int, ExperimentRow],
        marks: Mapping[int, str],
    ) -> None:
        before = self._snapshot
        has_master = is_master_running(self.home.root)
        if self._had_master is None:  # there were no readers before the first look
            self._had_master = has_master
            return
        changed = [
            trial_id
            for trial_id in touched & trials.keys()
            if self._marks.trials.get(trial_id) != marks[trial_id]
            or (earlier := before.trials.get(trial_id)) is None
            or trials[trial_id].row != earlier.row
        ]
        every_experiment = experiments.keys() | before.experiments.keys()
        self.feed.add(
            changed,
            touched - trials.keys(),
            [one for one in every_experiment if experiments.get(one) != before.experiments.get(one)],
            None if has_master == self._had_master else has_master,
        )
        self._had_master = has_master


def _active(trials: Mapping[int, Facts]) -> set[int]:
    return {trial_id for trial_id, one in trials.items() if one.row.state == "ACTIVE"}


def _differing(before: Mapping[int, Facts], after: Mapping[int, Facts]) -> set[int]:
    """Returns the trials that were added, removed or read again."""
    if before is after:
        return set()
    return {trial_id for trial_id in before.keys() | after.keys() if before.get(trial_id) is not after.get(trial_id)}
