"""Reads a metric of several trials in bins that are the same stretches of the horizontal axis in every trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

from core_sdk._analysis.charts.grouped_curves import bin_width, place_bins, place_width
from core_sdk._analysis.charts.horizontal_axis import Series, origin, places, steps_within
from core_sdk._ground.records import Source
from core_sdk._home import View
from core_sdk._home.rows import Bins, SeriesBucket

_T = TypeVar("_T")
_FINER = 2
"""Bins of steps that are read of each trial for a point over another axis."""


class Ask(Protocol):
    """Asks a view about a trial. It may remember the answer by the key until more is recorded of the trial."""

    def __call__(self, trial_id: int, key: Hashable, question: Callable[[View], _T], /) -> _T: ...


@dataclass(frozen=True)
class JoinedMetric:
    """The points of a metric that are joined."""

    group: str
    name: str
    x: str
    """The horizontal axis: "steps", "time", "epochs", or a metric as "group.name"."""
    max_points: int
    within: tuple[float, float] | None = None
    """The first x, and the one before which it ends; None asks for all."""
    rank: Source | None = None


def read_common_bins(ask: Ask, trial_ids: Sequence[int], wanted: JoinedMetric) -> dict[int, Bins]:
    """Returns the metric in bins of one width, at most `max_points` of them, by trial; without trials that lack it."""
    read = _over_steps if wanted.x == "steps" else _over_places
    return {trial_id: bins for trial_id, bins in read(ask, trial_ids, wanted).items() if bins.numbers}


def _over_steps(ask: Ask, trial_ids: Sequence[int], wanted: JoinedMetric) -> dict[int, Bins]:
    of, rank = (wanted.group, wanted.name), wanted.rank

    def read_ends(trial_id: int) -> tuple[int, int] | None:
        return ask(trial_id, (of, rank), lambda view: view.step_range([trial_id], *of, rank=rank))

    ends = {trial_id: found for trial_id in trial_ids if (found := read_ends(trial_id))}
    if not ends:
        return {}
    firsts, lasts = zip(*ends.values(), strict=True)
    first, last, within = min(firsts), max(lasts), None
    if wanted.within is not None:
        first, last = max(first, math.ceil(wanted.within[0])), min(last, math.ceil(wanted.within[1]) - 1)
        within = first, last
    width = bin_width(first, last, wanted.max_points)

    def read(trial_id: int) -> Bins:
        key = of, rank, width, within
        return ask(trial_id, key, lambda view: view.bins(trial_id, *of, width, within=within, rank=rank))

    return {trial_id: read(trial_id) for trial_id in ends}


class _PlacedMetric(NamedTuple):
    """A trial's metric in bins of steps, and where each of them ends on another axis."""

    bins: Bins
    places: Sequence[float | None]


def _over_places(ask: Ask, trial_ids: Sequence[int], wanted: JoinedMetric) -> dict[int, Bins]:
    everything = replace(wanted, within=None)

    def read_places(trial_id: int) -> _PlacedMetric:
        return ask(trial_id, everything, lambda view: _read_places(view, wanted, trial_id))

    placed = {trial_id: read_places(trial_id) for trial_id in trial_ids}
    places = [place for one in placed.values() for place in one.places if place is not None]
    if not places:
        return {}
    first, end = wanted.within or (min(places), math.inf)
    width = place_width(first, min(end, max(places)), wanted.max_points)

    def place(view: View, trial_id: int) -> Bins:
        found = placed[trial_id]
        steps = steps_within(found.bins.first_steps, found.bins.last_steps, found.places, (first, end))
        if wanted.within is not None and steps is not None:
            found = _read_places(view, wanted, trial_id, steps)
        places = [one if one is not None and first <= one < end else None for one in found.places]
        return place_bins(found.bins, places, width)

    def read(trial_id: int) -> Bins:
        return ask(trial_id, (wanted, width), lambda view: place(view, trial_id))

    return {trial_id: read(trial_id) for trial_id in trial_ids}


def _read_places(
    view: View, wanted: JoinedMetric, trial_id: int, within: tuple[int, int] | None = None
) -> _PlacedMetric:
    of = wanted.group, wanted.name
    ends = within or view.step_range([trial_id], *of, rank=wanted.rank) or (0, 0)
    width = bin_width(*ends, _FINER * wanted.max_points)
    bins = view.bins(trial_id, *of, width, within=within, rank=wanted.rank)
    series = Series(trial_id, *of, wanted.rank)
    columns = bins.first_steps, bins.last_steps, bins.counts, bins.minima, bins.maxima, bins.means
    found = places(view, series, list(map(SeriesBucket, *columns)), wanted.x)
    start = origin(view, trial_id, wanted.x)
    return _PlacedMetric(bins, [None if place is None else place - start for place in found])
