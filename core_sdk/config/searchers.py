"""The search methods that an experiment can name, with what each of them needs to know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from core_sdk.config._section import Section
from core_sdk.config.lengths import Length, Unit

MaxLength = Annotated[
    Length | None, Meta(description="how long to train, for scripts that ask `searcher.operations()`; `{epochs: 20}`")
]
MaxTrials = Annotated[int, Meta(ge=1, description="the number of trials")]


class SearcherConfig(Section, frozen=True, kw_only=True, tag_field="name"):
    """What all searchers have in common."""

    metric: Annotated[str, Meta(min_length=1, description="the validation metric that decides which trial is better")]
    smaller_is_better: Annotated[bool, Meta(description="whether smaller values of the metric are better")] = True
    source_trial_id: Annotated[
        int | None, Meta(description="every trial starts with the weights of this trial's latest checkpoint")
    ] = None
    source_checkpoint_uuid: Annotated[
        str | None, Meta(description="every trial starts with the weights of this checkpoint")
    ] = None

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        if self.source_trial_id is not None and self.source_checkpoint_uuid is not None:
            yield "source_trial_id", "cannot be given together with source_checkpoint_uuid"


class SingleSearcher(SearcherConfig, frozen=True, kw_only=True, tag="single"):
    """One trial; ranges of hyperparameters are sampled once."""

    max_length: MaxLength = None


class _Concurrent(SearcherConfig, frozen=True, kw_only=True):
    """A searcher of several trials."""

    max_concurrent_trials: Annotated[
        int, Meta(ge=0, description="the number of trials that run at the same time; 0 is no limit")
    ] = 16


class RandomSearcher(_Concurrent, frozen=True, kw_only=True, tag="random"):
    """Trials with sampled hyperparameters, each trained to its end."""

    max_trials: MaxTrials
    max_length: MaxLength = None


class GridSearcher(_Concurrent, frozen=True, kw_only=True, tag="grid"):
    """One trial for every point of the grid of hyperparameters."""

    max_points: Annotated[int, Meta(ge=1, description="a grid with more points than this is refused")] = 10_000
    max_length: MaxLength = None


class _Halving(_Concurrent, frozen=True, kw_only=True):
    """What both halving searchers have in common: the best 1/divisor of the trials at a rung go on to the next.

    With `time_metric` and `max_time`, a trial trains on and is stopped at a rung if it is not among the best. With
    `max_length`, it is paused at each rung and goes on once it is among the best.
    """

    max_trials: MaxTrials
    divisor: Annotated[float, Meta(gt=1, description="one in this many trials goes on to the next rung")] = 4.0
    time_metric: Annotated[
        str | None, Meta(description="the value in each validation report that says how far the training is")
    ] = None
    max_time: Annotated[int, Meta(ge=1, description="the `time_metric` at which the top rung ends")] | None = None
    max_length: MaxLength = None
    stop_once: Annotated[
        bool, Meta(description="with `max_length`: stop a trial that is not among the best, instead of pausing it")
    ] = False

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        yield from super()._contradictions()
        is_timed = self.time_metric is not None or self.max_time is not None
        if is_timed and self.max_length is not None:
            yield "max_length", "cannot be given together with time_metric and max_time"
        elif is_timed and self.time_metric is None:
            yield "time_metric", "is missing: max_time is a value of the metric that it names, such as epochs"
        elif is_timed and self.max_time is None:
            yield "max_time", f"is missing: it says at how many {self.time_metric} the training ends"
        elif not is_timed and self.max_length is None:
            yield "max_time", "is missing: give time_metric and max_time, or max_length"


class AsyncHalvingSearcher(_Halving, frozen=True, kw_only=True, tag="async_halving"):
    """Asynchronous successive halving (ASHA), with one bracket; also called `asha`."""

    num_rungs: Annotated[int, Meta(ge=1, description="the number of rungs")]


class AdaptiveAshaSearcher(_Halving, frozen=True, kw_only=True, tag="adaptive_asha"):
    """Several brackets of asynchronous successive halving, side by side, with different numbers of rungs."""

    mode: Annotated[
        Literal["aggressive", "standard", "conservative"],
        Meta(description="how early trials are stopped: the fewer brackets, the earlier"),
    ] = "standard"
    max_rungs: Annotated[int, Meta(ge=1, description="the largest number of rungs of a bracket")] = 5
    bracket_rungs: Annotated[
        tuple[Annotated[int, Meta(ge=1)], ...],
        Meta(description="the number of rungs of each bracket, instead of a `mode`"),
    ] = ()


class CustomSearcher(SearcherConfig, frozen=True, kw_only=True, tag="custom"):
    """A search method of the user's own, which creates the trials."""

    unit: Annotated[Unit | None, Meta(description="the unit of the lengths that the method asks for")] = None


Searcher = SingleSearcher | RandomSearcher | GridSearcher | AsyncHalvingSearcher | AdaptiveAshaSearcher | CustomSearcher
