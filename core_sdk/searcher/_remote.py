"""A runner inside a trial, which keeps its state in the trial's checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike

from core_sdk.core import Context
from core_sdk.search import SearchMethod
from core_sdk.searcher._runner import Config, SearchRunner, paths


class RemoteSearchRunner(SearchRunner):
    """Drives the method in a trial of its own, which is stopped, restarted and resumed like any other trial.

    The trial needs no GPU: `resources: {slots_per_trial: 0}`.
    """

    def __init__(self, search_method: SearchMethod, context: Context) -> None:
        """`context` must belong to a script with one rank. Raises `ValueError` if there are several."""
        if context.distributed.size > 1:
            raise ValueError(f"one rank drives a search, and this script has {context.distributed.size}")
        super().__init__(search_method)
        self.context = context
        self._stored: str | None = None

    def run(
        self,
        exp_config: Config,
        model_dir: str | PathLike[str] | None = None,
        includes: Iterable[str | PathLike[str]] | None = None,
    ) -> int:
        """Submits the experiment and drives it to its end, or goes on with the one that this trial has submitted.

        Returns its id. Also returns if the trial is asked to stop; the trial's next attempt then continues. Raises the
        errors of `client.create_experiment`.
        """
        info = self.context.info
        if info.latest_checkpoint is not None:
            with self.context.checkpoint.restore_path(info.latest_checkpoint) as path:
                self._read_state(path)
        return self._run(exp_config, *paths(model_dir, includes), f"trial-{info.trial.trial_id}")

    def _save(self, num_events: int) -> None:
        with self.context.checkpoint.store_path({"steps_completed": num_events}) as (path, storage_id):
            self._write_state(path)
        if self._stored is not None:
            self.context.checkpoint.delete(self._stored)
        self._stored = storage_id

    def _should_stop(self) -> bool:
        return self.context.preempt.should_preempt()
