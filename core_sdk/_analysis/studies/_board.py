"""A study on one screen: what is best, and a line for each try, in at most 2 KB."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from core_sdk._analysis.studies._alarms import alarms, study_alarms
from core_sdk._execution.studies import host_of_wait
from core_sdk._ground.records import SearcherMetric, StudyRecord, format_number
from core_sdk._home import Home, View
from core_sdk._home.finding.noise import CONFIDENCE, Mark
from core_sdk._home.finding.running import Running, read_running
from core_sdk._home.finding.similar import Likeness
from core_sdk._home.finding.tries import Tries, Try, TryState, read_tries, value_of

MOST_BYTES = 2048
_MOST_HYPOTHESIS_BYTES = 60
_MOST_SHOWN = 40
_FEWEST_LUCKY = 0.5


@dataclass(frozen=True)
class BoardLine:
    """A try on a board."""

    try_id: int
    """Its number, which is the id of its first trial."""
    parent: int | None
    """The try that it varies."""
    author: str
    """The person or agent that has begun it."""
    hypothesis: str
    """The hypothesis that it was to test."""
    state: TryState
    """What has become of it. `ended`: all of its trials have ended as the study says, also by its budget."""
    reason: str
    """Why it has not ended well."""
    verdict: str
    """What was decided about it: `keep`, `discard`, or nothing yet."""
    verdict_reason: str
    """Why that was decided."""
    num_seeds: int
    """The number of its trials."""
    num_values: int
    """The number of its trials that have ended with a value; while it runs, those that have reported one."""
    value: float | None
    """The mean of their best values; while it runs, of those up to the step `at_step`."""
    spread: float | None
    """The standard deviation of their best values; None for one."""
    difference: float | None
    """The difference to the mean of the parent; while it runs, to the parent's values up to the same step."""
    margin: float | None
    """Half of the interval of the difference, at 95 %."""
    mark: Mark | None
    """Whether noise explains the difference. `one seed`: nothing is known about the noise. `no noise`: all seeds of the
    study gave the same value in each try."""
    method: str
    """The method by which the interval was found, in words."""
    is_better: bool | None
    """Whether the difference is one for the better; None without a difference."""
    at_step: int | None
    """The step up to which it is compared, which all of its trials have reached; None if it has ended."""
    progress: float | None
    """The share of its trials' work that is done, by what they say or by the steps of its parent, while it runs."""
    remaining_s: float | None
    """The time until those of its trials have ended that run now, by their pace and the study's budget."""
    waits_on: str
    """The name of the machine for whose slots one of its trials waits; empty if none does."""
    created: float
    """The time at which its first trial was made, in seconds since the Unix epoch."""
    ended: float | None
    """The time at which its last trial ended; None if one goes on, or waits for slots."""
    alarms: Sequence[str]
    """What is suspicious about it; empty for most tries that the text leaves out."""


@dataclass(frozen=True)
class Board:
    """A study on a board. `core-sdk board --json` prints its fields, and docs/board.md lists them."""

    experiment_id: int
    """The experiment that the study is."""
    study: str
    """Its name."""
    metric: str
    """The metric that decides."""
    smaller_is_better: bool
    """Whether a smaller value of it is the better one."""
    best: int | None
    """The try with the best mean among those that have ended and were not discarded."""
    best_line: Sequence[int]
    """The best try, and before it those from which it was varied."""
    num_tries: int
    """The number of tries."""
    num_failed: int
    """The number of tries of which a trial has failed."""
    num_running: int
    """The number of tries that run, or wait for slots."""
    num_trials: int
    """The number of trials of all tries."""
    elapsed_s: float
    """The time from the first try to the end of the last one, or until now."""
    noise: float | None
    """The spread of seeds, pooled over all tries; None if no try has two."""
    num_lucky: float
    """The number of tries that would look better beyond noise if no change did anything."""
    alarms: Sequence[str]
    """What is suspicious about all tries together."""
    tries: Sequence[BoardLine]
    """All tries, in the order of their numbers."""


def read_board(
    home: Home, view: View, experiment_id: int, study: StudyRecord, *, most_alarmed: int = _MOST_SHOWN
) -> Board:
    """Reads the board of a study.

    `most_alarmed` of its newest tries have alarms, besides the best, what leads to it, and those that run: each takes
    some time.
    """
    metric = SearcherMetric.named(study.best_by)
    tries = read_tries(view, experiment_id, metric)
    best = tries.best
    every = list(tries.by_id.values())
    running = [one for one in every if one.state == "running"]
    telling = {one.try_id for one in [*tries.line_of(best), *running, *every[-most_alarmed:]]}
    lines = [
        read_line_of(home, view, study, tries, one) if one.try_id in telling else board_line(tries, one)
        for one in every
    ]
    return Board(
        experiment_id=experiment_id,
        study=home.experiment(experiment_id).read().name,
        metric=metric.name,
        smaller_is_better=metric.smaller_is_better,
        best=None if best is None else best.try_id,
        best_line=[one.try_id for one in tries.line_of(best)],
        num_tries=len(every),
        num_failed=sum(one.state == "failed" for one in every),
        num_running=sum(not one.has_ended for one in every),
        num_trials=sum(len(one.trials) for one in every),
        elapsed_s=_elapsed_s(every),
        noise=None if tries.pooled is None else tries.pooled.spread,
        num_lucky=num_lucky(lines),
        alarms=study_alarms(tries),
        tries=lines,
    )


def num_lucky(lines: Iterable[BoardLine]) -> float:
    """Returns the number of tries that would look better beyond noise if no change did anything."""
    return sum(one.mark in ("beyond noise", "within noise") for one in lines) * (1 - CONFIDENCE) / 2


def board_text(board: Board, most_bytes: int = MOST_BYTES) -> str:
    """Returns a board for people and models, in at most so many bytes.

    The best try and what leads to it are never left out; what is left out is counted.
    """
    head = _head(board)
    lines = {one.try_id: _told(one, one.try_id == board.best) for one in board.tries}
    room = most_bytes - sum(len(line.encode()) + 1 for line in head) - len("(12,345 tries left out)\n")
    shown = _chosen(_by_weight(board), lines, room)
    left_out = len(lines) - len(shown)
    told = [lines[try_id] for try_id in sorted(shown)]
    return "\n".join([*head, *told, *([f"({left_out:,} tries left out)"] if left_out else [])])


def _head(board: Board) -> list[str]:
    reading = "smaller" if board.smaller_is_better else "larger"
    counts = [f"{board.num_tries:,} tries"]
    counts += [f"{board.num_running} running"] if board.num_running else []
    counts += [f"{board.num_failed} failed"] if board.num_failed else []
    noise = "noise unknown" if board.noise is None else f"noise {format_number(_rounded(board.noise, board.noise))}"
    head = [
        f"{_cut(board.study, 60)}: {board.metric}, {reading} is better; {', '.join(counts)}, "
        f"{board.num_trials:,} trials, in {_duration(board.elapsed_s)}, {noise}"
    ]
    if board.best is not None:
        head.append(f"best: {' > '.join(map(str, _shortened(board.best_line)))}")
    if board.num_lucky >= _FEWEST_LUCKY:
        head.append(f"by luck alone, about {board.num_lucky:.0f} tries look better beyond noise: repeat what matters")
    return [*head, *(f"alarm: {each}" for each in board.alarms)]


def _by_weight(board: Board) -> Iterable[int]:
    """Returns the tries, those first that are left out last."""
    of_best = [*board.best_line][-5:]
    helped = [one.try_id for one in board.tries if one.mark == "beyond noise" and one.is_better]
    running = [one.try_id for one in board.tries if one.state in ("running", "queued")]
    newest = [one.try_id for one in reversed(board.tries)]
    return dict.fromkeys([*reversed(of_best), *reversed(helped[-10:]), *reversed(running[-8:]), *newest])


def read_line_of(home: Home, view: View, study: StudyRecord, tries: Tries, one: Try) -> BoardLine:
    """Reads the line of a try with its alarms, and compared at the same step while it runs."""
    running = None if one.has_ended else read_running(view, tries, one, study.budget_s)
    waits_on = "" if one.has_ended else host_of_wait(home, (each.row.trial_id for each in one.trials))
    return board_line(tries, one, alarms(home, view, tries, one), running, waits_on)


def board_line(
    tries: Tries, one: Try, alarms_of_it: Sequence[str] = (), running: Running | None = None, waits_on: str = ""
) -> BoardLine:
    """Returns the line of a try. `running` is how far one has come that has not ended, `waits_on` where it waits."""
    row = one.row
    if running is None:
        sample, found = one.sample, tries.to_parent(one)
    else:
        sample, found = running.sample, running.to_parent
    return BoardLine(
        try_id=one.try_id,
        parent=row.parent,
        author=row.author,
        hypothesis=row.hypothesis,
        state=one.state,
        reason=one.reason,
        verdict=row.verdict,
        verdict_reason=row.verdict_reason,
        num_seeds=len(one.trials),
        num_values=0 if sample is None else sample.count,
        value=_value_so_far(tries, one) if sample is None else sample.mean,
        spread=None if sample is None else sample.spread,
        difference=None if found is None else found.value,
        margin=None if found is None else found.margin,
        mark=None if found is None else found.mark,
        method="" if found is None else found.method,
        is_better=None if found is None else found.is_better(smaller_is_better=tries.metric.smaller_is_better),
        at_step=None if running is None else running.step,
        progress=None if running is None else running.progress,
        remaining_s=None if running is None else running.remaining_s,
        waits_on=waits_on,
        created=row.created,
        ended=_ended(one),
        alarms=list(alarms_of_it),
    )


def _ended(one: Try) -> float | None:
    ends = [each.row.ended for each in one.trials]
    known = [each for each in ends if each is not None]
    return max(known) if known and len(known) == len(ends) and one.has_ended else None


def _elapsed_s(tries: Sequence[Try]) -> float:
    rows = [each.row for one in tries for each in one.trials]
    ends = [time.time() if row.ended is None else row.ended for row in rows]
    return max(0.0, max(ends) - min(row.created for row in rows)) if rows else 0.0


def _value_so_far(tries: Tries, one: Try) -> float | None:
    values = [value for each in one.trials if (value := value_of(each, tries.metric)) is not None]
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else None


def _told(one: BoardLine, is_best: bool) -> str:
    """Returns the line of a try: id, n, value and spread, difference and its mark, verdict or state, what."""
    words = [f"{one.try_id}{'*' * is_best}", f"n={one.num_values}", value_text(one) + at_step_text(one)]
    if one.difference is not None:
        words.append(difference_text(one))
    words.append(one.verdict or ("" if one.state == "ended" else state_text(one)))
    words.append(_cut(one.hypothesis, _MOST_HYPOTHESIS_BYTES))
    words += [f"! {_cut(each, 50)}" for each in one.alarms[:1]]
    return "  ".join(word for word in words if word)


def state_text(one: BoardLine) -> str:
    """Returns the state of a try, with its progress and the time that is left, or with the reason."""
    progress = f" on {_cut(one.waits_on, 30)}" if one.state == "queued" and one.waits_on else ""
    progress += "" if one.progress is None else f" {one.progress:.0%}"
    progress += "" if one.remaining_s is None else f", {_duration(one.remaining_s)} left"
    return f"{one.state}{progress}" + (f" ({_cut(_in_few_words(one.reason), 40)})" if one.reason else "")


def _in_few_words(reason: str) -> str:
    return " ".join(re.split("[,;]", reason, maxsplit=1)[0].split()[:7])


def value_text(one: BoardLine) -> str:
    """Returns the value of a try and its spread, with as many digits as the spread has."""
    if one.value is None:
        return "no value"
    if one.spread is None:
        return f"{one.value:.4g}"
    digits = _digits_of(one.spread)
    return f"{one.value:.{digits}f} ± {one.spread:.{digits}f}" if one.spread else f"{one.value:.5g} ± 0"


def at_step_text(one: BoardLine) -> str:
    """Returns up to which step a try is compared that still runs; empty for one that has ended."""
    return "" if one.at_step is None else f" at step {one.at_step}"


def already_tried_text(likeness: Likeness, known: Try, tries: Tries) -> str:
    """Returns what is told instead of a try that is like a known one."""
    line = board_line(tries, known)
    state = {"keep": "kept", "discard": "discarded"}.get(line.verdict, line.state)
    value = "" if line.value is None else f", {value_text(line)} (n = {line.num_values})"
    hows = {"equal": "", "same change": " with the same change", "like words": f" as {line.hypothesis!r}"}
    by = "" if known.has_ended else f" by {line.author}"
    what = "adds seeds to it" if likeness == "equal" else "runs it"
    return f"tried as {line.try_id}{hows[likeness]}{by}: {state}{value}. `--again` {what}"


def difference_text(one: BoardLine) -> str:
    if one.difference is None:
        return ""
    if not one.margin:
        return f"{one.difference:+.3g} {one.mark}"
    digits = _digits_of(one.margin)
    better = "" if one.mark != "beyond noise" else " better" if one.is_better else " worse"
    return f"{one.difference:+.{digits}f} ± {one.margin:.{digits}f} {one.mark}{better}"


def _digits_of(spread: float) -> int:
    """Returns how many digits after the point show two figures of a spread."""
    exponent = int(f"{spread:.1e}".partition("e")[2])
    return 4 if not spread else min(max(0, 1 - exponent), 10)


def _rounded(value: float, spread: float) -> float:
    return round(value, _digits_of(spread))


def _chosen(by_weight: Iterable[int], lines: Mapping[int, str], room: int) -> set[int]:
    shown: set[int] = set()
    for try_id in by_weight:
        room -= len(lines[try_id].encode()) + 1
        if room < 0:
            break
        shown.add(try_id)
    return shown


def _shortened(line: Sequence[int]) -> list[int | str]:
    return [*line] if len(line) <= 12 else [line[0], f"({len(line) - 11})", *line[-10:]]


def _duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _cut(text: str, most_bytes: int) -> str:
    line = " ".join(text.split())
    cut = line.encode()[:most_bytes].decode(errors="ignore")
    return line if cut == line else f"{cut[:-1]}…"
