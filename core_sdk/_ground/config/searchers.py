"""The search methods that an experiment can name, with the settings of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from core_sdk._ground.config.lengths import Length, Unit
from core_sdk._ground.sections import Section, about

MaxTrials = Annotated[int, about("the number of trials", ge=1)]
MaxLength = Annotated[Length | None, about("how long to train, for scripts that ask `searcher.operations()`")]
_Sampler = Literal["random", "bayes"]
_Mode = Literal["aggressive", "standard", "conservative"]


class SearcherConfig(Section, frozen=True, kw_only=True, tag_field="name"):
    """The settings that all searchers have in common."""

    metric: Annotated[str, about("the validation metric by which one trial is better than another", min_length=1)]
    smaller_is_better: Annotated[bool, about("whether smaller values of the metric are better")] = True
    writer: (
        Annotated[str, about("the writer whose validations count, not those of the trials' scripts", min_length=1)]
        | None
    ) = None
    source_trial_id: Annotated[int | None, about("trials start with the weights of this trial's last checkpoint")] = (
        None
    )
    source_checkpoint_uuid: Annotated[str | None, about("trials start with the weights of this checkpoint")] = None

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        yield from super()._contradictions()
        if self.source_trial_id is not None and self.source_checkpoint_uuid is not None:
            yield "source_trial_id", "cannot be given together with source_checkpoint_uuid"


class SingleSearcher(SearcherConfig, frozen=True, kw_only=True, tag="single"):
    """A single trial. Ranges of hyperparameters are sampled once."""

    max_length: MaxLength = None


class _ConcurrentSearcher(SearcherConfig, frozen=True, kw_only=True):
    max_concurrent_trials: Annotated[
        int, about("how many trials run at the same time; with 0, as many as the searcher has use for", ge=0)
    ] = 16


class RandomSearcher(_ConcurrentSearcher, frozen=True, kw_only=True, tag="random"):
    """Trials with sampled hyperparameters, each trained to its end."""

    max_trials: MaxTrials
    max_length: MaxLength = None


class GridSearcher(_ConcurrentSearcher, frozen=True, kw_only=True, tag="grid"):
    """A trial for every point of the grid of hyperparameters."""

    max_points: Annotated[int, about("a grid of more points is refused", ge=1)] = 10_000
    max_length: MaxLength = None


class _HalvingSearcher(_ConcurrentSearcher, frozen=True, kw_only=True):
    """The settings of a halving search, which trains only the best 1/divisor of the trials at a rung to the next.

    With `time_metric` and `max_time`, a trial trains on, and is stopped at a rung where it is not among the best. With
    `max_length`, it pauses at each rung, and goes on once it is among the best.
    """

    max_trials: MaxTrials
    divisor: Annotated[float, about("one in this many trials goes on to the next rung", gt=1)] = 4.0
    time_metric: Annotated[str | None, about("the metric that says how far the training is, such as `epochs`")] = None
    max_time: Annotated[int, about("the `time_metric` at which the training ends", ge=1)] | None = None
    max_length: MaxLength = None
    sampler: Annotated[
        _Sampler, about("what chooses the hyperparameters: chance, or a model of the results so far")
    ] = "random"
    stop_once: Annotated[bool, about("with `max_length`: trials are stopped at a rung instead of paused")] = False
    alternatives: ClassVar[Mapping[tuple[str, ...], str]] = {
        ("max_time", "max_length"): "is missing: give time_metric and max_time, or max_length"
    }

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        yield from super()._contradictions()
        is_timed = self.time_metric is not None or self.max_time is not None
        if is_timed and self.max_length is not None:
            yield "max_length", "cannot be given together with time_metric and max_time"
        elif is_timed and self.time_metric is None:
            yield "time_metric", "is missing: max_time is a value of the metric that it names, such as epochs"


class AsyncHalvingSearcher(_HalvingSearcher, frozen=True, kw_only=True, tag="async_halving"):
    """Asynchronous successive halving (ASHA), in one bracket; also called `asha`."""

    num_rungs: Annotated[int, about("the number of rungs", ge=1)]


class AdaptiveAshaSearcher(_HalvingSearcher, frozen=True, kw_only=True, tag="adaptive_asha"):
    """Brackets of asynchronous successive halving, side by side, with different numbers of rungs."""

    mode: Annotated[_Mode, about("how early trials are stopped: `aggressive` has one bracket")] = "standard"
    max_rungs: Annotated[int, about("the largest number of rungs of a bracket", ge=1)] = 5
    bracket_rungs: Annotated[tuple[_Rungs, ...], about("the number of rungs of each bracket; overrides `mode`")] = ()


_Rungs = Annotated[int, about("the number of rungs of a bracket", ge=1)]


class CustomSearcher(SearcherConfig, frozen=True, kw_only=True, tag="custom"):
    """A search method of the user's own, which creates the trials."""

    unit: Annotated[Unit | None, about("the unit of the lengths that the method asks for")] = None


Searcher = SingleSearcher | RandomSearcher | GridSearcher | AsyncHalvingSearcher | AdaptiveAshaSearcher | CustomSearcher
