"""A study on one screen: what is best, and a line for each try, in at most 2 KB."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from core_sdk._analysis.studies._alarms import alarms, study_alarms
from core_sdk._ground.records import SearcherMetric, format_number
from core_sdk._home import Home, View
from core_sdk._home.finding.noise import CONFIDENCE, Mark
from core_sdk._home.finding.tries import Tries, Try, TryState, read_tries, value_of

MOST_BYTES = 2048
_MOST_HYPOTHESIS_BYTES = 60
_MOST_SHOWN = 40
_FEWEST_LUCKY = 0.5


@dataclass(frozen=True)
class BoardLine:
    """A try on a board. Its fields are those of `core-sdk board --json`."""

    try_id: int
    parent: int | None
    author: str
    hypothesis: str
    state: TryState
    reason: str
    """Why it has not ended well."""
    verdict: str
    verdict_reason: str
    num_seeds: int
    """The number of its trials."""
    num_values: int
    """The number of its trials that have ended with a value."""
    value: float | None
    """The mean of their best values."""
    spread: float | None
    """The standard deviation of their best values; None for one."""
    difference: float | None
    """To the mean of the parent."""
    margin: float | None
    """Half of the interval of the difference, at 95 %."""
    mark: Mark | None
    method: str
    is_better: bool | None
    """Whether the difference is one for the better; None without a difference."""
    progress: float | None
    """The share of its trials' work that is done, as far as they say so."""
    alarms: Sequence[str]


@dataclass(frozen=True)
class Board:
    """A study on a board. Its fields are those of `core-sdk board --json`."""

    experiment_id: int
    study: str
    metric: str
    smaller_is_better: bool
    best: int | None
    best_line: Sequence[int]
    """The best try, and before it those from which it was varied."""
    num_tries: int
    num_failed: int
    num_running: int
    num_trials: int
    elapsed_s: float
    """The time from the first try to the end of the last one, or until now."""
    noise: float | None
    """The spread of seeds, pooled over all tries; None if no try has two."""
    alarms: Sequence[str]
    tries: Sequence[BoardLine]

    @property
    def num_lucky(self) -> float:
        """Returns the number of tries that would look better beyond noise if no change did anything."""
        return sum(one.mark in ("beyond noise", "within noise") for one in self.tries) * (1 - CONFIDENCE) / 2

    def text(self, most_bytes: int = MOST_BYTES) -> str:
        """Returns the board for people and models, in at most so many bytes.

        The best try and what leads to it are never left out; what is left out is counted.
        """
        head = self._head()
        lines = {one.try_id: _told(one, one.try_id == self.best) for one in self.tries}
        room = most_bytes - sum(len(line.encode()) + 1 for line in head) - len("(12,345 tries left out)\n")
        shown = _chosen(self._by_weight(), lines, room)
        left_out = len(lines) - len(shown)
        told = [lines[try_id] for try_id in sorted(shown)]
        return "\n".join([*head, *told, *([f"({left_out:,} tries left out)"] if left_out else [])])

    def _head(self) -> list[str]:
        reading = "smaller" if self.smaller_is_better else "larger"
        counts = [f"{self.num_tries:,} tries"]
        counts += [f"{self.num_running} running"] if self.num_running else []
        counts += [f"{self.num_failed} failed"] if self.num_failed else []
        noise = "noise unknown" if self.noise is None else f"noise {format_number(_rounded(self.noise, self.noise))}"
        head = [
            f"{_cut(self.study, 60)}: {self.metric}, {reading} is better; {', '.join(counts)}, "
            f"{self.num_trials:,} trials, in {_duration(self.elapsed_s)}, {noise}"
        ]
        if self.best is not None:
            head.append(f"best: {' > '.join(map(str, _shortened(self.best_line)))}")
        if self.num_lucky >= _FEWEST_LUCKY:
            head.append(
                f"by luck alone, about {self.num_lucky:.0f} tries look better beyond noise: repeat what matters"
            )
        return [*head, *(f"alarm: {each}" for each in self.alarms)]

    def _by_weight(self) -> Iterable[int]:
        """Returns the tries, those first that are left out last."""
        of_best = [*self.best_line][-5:]
        helped = [one.try_id for one in self.tries if one.mark == "beyond noise" and one.is_better]
        running = [one.try_id for one in self.tries if one.state in ("running", "queued")]
        newest = [one.try_id for one in reversed(self.tries)]
        return dict.fromkeys([*reversed(of_best), *reversed(helped[-10:]), *reversed(running[-8:]), *newest])


def read_board(home: Home, view: View, experiment_id: int, metric: SearcherMetric) -> Board:
    """Reads the board of a study."""
    tries = read_tries(view, experiment_id, metric)
    best = tries.best
    every = list(tries.by_id.values())
    telling = {one.try_id for one in [*tries.line_of(best), *every[-_MOST_SHOWN:]]}
    lines = [board_line(tries, one, alarms(home, view, tries, one) if one.try_id in telling else ()) for one in every]
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
        alarms=study_alarms(tries),
        tries=lines,
    )


def board_line(tries: Tries, one: Try, alarms_of_it: Sequence[str] = ()) -> BoardLine:
    row, sample, found = one.row, one.sample, tries.to_parent(one)
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
        progress=_progress(one),
        alarms=list(alarms_of_it),
    )


def _elapsed_s(tries: Sequence[Try]) -> float:
    rows = [each.row for one in tries for each in one.trials]
    ends = [time.time() if row.ended is None else row.ended for row in rows]
    return max(0.0, max(ends) - min(row.created for row in rows)) if rows else 0.0


def _value_so_far(tries: Tries, one: Try) -> float | None:
    values = [value for each in one.trials if (value := value_of(each, tries.metric)) is not None]
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else None


def _progress(one: Try) -> float | None:
    known = [each.row.progress for each in one.trials if each.row.state == "ACTIVE" and each.row.progress is not None]
    return sum(known) / len(known) if known else None


def _told(one: BoardLine, is_best: bool) -> str:
    """Returns the line of a try: id, n, value and spread, difference and its mark, verdict or state, what."""
    words = [f"{one.try_id}{'*' * is_best}", f"n={one.num_values}", value_text(one)]
    if one.difference is not None:
        words.append(difference_text(one))
    words.append(one.verdict or ("" if one.state == "ended" else _state_text(one)))
    words.append(_cut(one.hypothesis, _MOST_HYPOTHESIS_BYTES))
    words += [f"! {_cut(each, 50)}" for each in one.alarms[:1]]
    return "  ".join(word for word in words if word)


def _state_text(one: BoardLine) -> str:
    progress = "" if one.progress is None else f" {one.progress:.0%}"
    return f"{one.state}{progress}" + (f" ({_cut(_in_three_words(one.reason), 40)})" if one.reason else "")


def _in_three_words(reason: str) -> str:
    return " ".join(reason.split()[:6])


def value_text(one: BoardLine) -> str:
    """Returns the value of a try and its spread, with as many digits as the spread has."""
    if one.value is None:
        return "no value"
    if one.spread is None:
        return f"{one.value:.4g}"
    digits = _digits_of(one.spread)
    return f"{one.value:.{digits}f} ± {one.spread:.{digits}f}" if one.spread else f"{one.value:.5g} ± 0"


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
