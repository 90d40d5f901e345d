"""The state of a training: all that it needs to resume as if it had never been stopped."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import torch

from core_sdk._ground.keywords import STEPS, says_what_is_meant
from core_sdk.errors import CheckpointTooNewError, StateMismatchError
from core_sdk.loop import _rng as rng
from core_sdk.loop._keeping import kept_parts
from core_sdk.loop._plain import from_plain, holds_sharded_tensors, to_plain
from core_sdk.loop._restoring import load_object, unwrapped
from core_sdk.loop._saving import SHARDED_FILES, Held, StateSaver, put_back

if TYPE_CHECKING:
    from core_sdk._ground.records import Keep
    from core_sdk.core import Context

STATE_FILE = "state.pt"
FORMAT = 1
_RANDOM = "random"


@runtime_checkable
class Loader(Protocol):
    """A loader that gives the batches of a training, and counts them. `resumable()` makes one."""

    @property
    def batches(self) -> int: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class State:
    """The named objects that a training keeps in its checkpoints, besides the random numbers of all ranks.

        loader = loop.resumable(loader, seed=0)
        state = loop.State(model=model, optimizer=optimizer, loader=loader)
        state.restore(core_context)

    An object has `state_dict()` and `load_state_dict()`, or is a dict with the script's own values, which is restored
    in place. Values may be numbers, texts, tensors, numpy's values, dates, enums and paths, and containers and
    dataclasses of them. All ranks name the same objects. A checkpoint keeps the chief's state of each object, and the
    loaders and random numbers of every rank. If `fully_shard()` has split a model, each rank writes its part; any
    number of ranks can resume from that, also with a whole model.
    """

    def __init__(self, *unnamed: Any, **objects: Any) -> None:
        """Raises `TypeError` for an object that has no name, or cannot be kept."""
        if unnamed:
            raise TypeError("State() needs a name for each object, as in State(model=model, optimizer=optimizer)")
        for name, target in objects.items():
            _check_object(name, target)
        self._loaders = {name: each for name, each in objects.items() if isinstance(each, Loader)}
        self._objects = {name: each for name, each in objects.items() if name not in self._loaders}
        self._saver = StateSaver()

    @says_what_is_meant(STEPS)
    def save(
        self,
        core_context: Context,
        *,
        steps_completed: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        wait: bool = True,
        write: Callable[[Path], object] | None = None,
    ) -> str:
        """Stores a checkpoint, and returns its storage id on every rank. Collective.

        Save between two steps: a batch that a loader has given counts as trained on. `steps_completed` is by default
        the number of the first loader's batches. `write` is called on the chief with the directory of the checkpoint,
        to add files. What it or a `state_dict()` draws at random does not change the training. With `wait=False` the
        call only copies the state in host memory; all else is done in the background, as by `store_path()`. The memory
        is kept for the next save.

        Raises `TypeError`, which names the place of a value that could not be loaded again.
        """
        steps = self._num_batches() if steps_completed is None else steps_completed
        with rng.kept():
            return self._save(core_context, steps, metadata or {}, wait=wait, write=write)

    def _save(
        self,
        core_context: Context,
        steps_completed: int,
        metadata: Mapping[str, Any],
        *,
        wait: bool,
        write: Callable[[Path], object] | None,
    ) -> str:
        content = self.state_dict(core_context)
        is_sharded = holds_sharded_tensors(content["objects"])
        is_chief = core_context.distributed.is_chief

        def hold(directory: Path) -> Held:
            shards = None
            if is_sharded:
                channel = core_context.distributed.channel
                content["objects"], shards = self._saver.take_out(content["objects"], channel)
            files = {STATE_FILE: plain_content(content)} if is_chief else {}
            if is_chief and write is not None:
                write(directory)
            return files, shards

        all_metadata = {"steps_completed": steps_completed, **metadata} if is_chief else {}
        return self._saver.save(core_context, all_metadata, hold, shard=is_sharded, wait=wait)

    def restore(
        self,
        core_context: Context,
        *,
        strict: bool = True,
        keep: Keep | None = None,
    ) -> bool:
        """Loads the checkpoint from which this attempt resumes, and returns whether there is one. Collective.

        `keep` says what is loaded: "all"; "model", only the weights of modules; or the names of some objects, where
        "random" stands for the random numbers. Everything else stays as the script has made it: an optimizer
        with its new learning rate, a loader at its first batch. The default is "all", but "model" in a new trial that
        begins with the checkpoint of another one (`core-sdk trial continue`), whose `--keep` has precedence.

        Raises what `load_state_dict()` raises, and `ValueError` for a name that is not registered.
        """
        self._kept("all" if keep is None else keep)  # a wrong name must fail in a first start, too
        storage_id = core_context.info.latest_checkpoint
        if storage_id is None:
            return False
        keep = core_context.checkpoint.what_to_keep(keep)
        selected = (STATE_FILE, SHARDED_FILES)
        with core_context.checkpoint.restore_path(
            storage_id, selector=lambda name: name.startswith(selected)
        ) as directory:
            content = _read(storage_id, directory / STATE_FILE)
            content["objects"] = self._put_back(content["objects"], directory)
            self.load_state_dict(content, core_context, strict=strict, keep=keep)
        return True

    def state_dict(self, core_context: Context | None = None) -> dict[str, Any]:
        """Returns the content of a checkpoint. With a Context it is collective, and complete on the chief only."""
        own = {"random": rng.capture(), "loaders": {name: each.state_dict() for name, each in self._loaders.items()}}
        return {
            "format": FORMAT,
            "trial_id": None if core_context is None else core_context.info.trial.trial_id,
            "objects": {name: _state_of(target) for name, target in self._objects.items()},
            "ranks": [own] if core_context is None else core_context.distributed.gather(own),
        }

    def load_state_dict(
        self,
        state: Mapping[str, Any],
        core_context: Context | None = None,
        *,
        strict: bool = True,
        keep: Keep | None = None,
    ) -> None:
        """Loads what `state_dict()` has returned. With a Context, loads it for its trial and rank, as `restore()` does.

        Raises `StateMismatchError` if an object does not fit its state. With `strict`, also raises it for an object
        that is only here or only in the checkpoint; otherwise such an object is left alone.
        """
        if keep is None:
            is_other = core_context is not None and state["trial_id"] not in (None, core_context.info.trial.trial_id)
            keep = "model" if is_other else "all"
        kept = self._kept(keep)
        state = from_plain(state)
        rank = 0 if core_context is None else core_context.distributed.rank
        ranks = state["ranks"]
        loaders = ranks[rank if rank < len(ranks) else 0]["loaders"]
        targets, stored = {**self._objects, **self._loaders}, {**state["objects"], **loaders}
        if keep != "all":
            targets = {name: each for name, each in targets.items() if name in kept}
            stored = {name: each for name, each in stored.items() if name in kept}
        _load(targets, stored, strict)
        if _RANDOM in kept:
            restore_random_numbers([each["random"] for each in ranks], rank)

    def _kept(self, keep: Keep) -> frozenset[str]:
        models = [name for name, each in self._objects.items() if isinstance(each, torch.nn.Module)]
        return kept_parts(keep, [*self._objects, *self._loaders, _RANDOM], models=models)

    def _put_back(self, objects: dict[str, Any], directory: Path) -> dict[str, Any]:
        """Returns the objects with the tensors that ranks have written in parts, spread as in the objects here."""

        def present() -> dict[str, Any]:
            from core_sdk.loop._sharded_tensors import presence  # slow to import

            return {name: presence(target) for name, target in self._objects.items()}

        own = [_state_of(each) for each in self._objects.values() if isinstance(each, torch.nn.Module)]
        return put_back(objects, directory, present, is_sharded=holds_sharded_tensors(own))

    def _num_batches(self) -> int:
        for loader in self._loaders.values():
            return loader.batches
        raise ValueError("save() does not know how far the training is: register a loader, or pass steps_completed")


def restore_random_numbers(states: Sequence[dict[str, Any]], rank: int) -> None:
    """Restores the random numbers of this rank. `states` has the result of `rng.capture()` on each earlier rank.

    A new rank gets other random numbers, which follow from the chief's.
    """
    rng.restore(states[rank if rank < len(states) else 0])
    if rank >= len(states):
        rng.seed_all(rng.key(rank, random.getrandbits(64)))


def _check_object(name: str, target: Any) -> None:
    if isinstance(target, torch.utils.data.DataLoader):
        raise TypeError(f"State({name}=…) is a DataLoader, which keeps no position: register loop.resumable(loader)")
    methods = (getattr(target, method, None) for method in ("state_dict", "load_state_dict"))
    if not isinstance(target, dict) and not all(map(callable, methods)):
        is_iterator = hasattr(target, "__next__")  # such as Grain's
        remedy = (
            "register loop.resumable() of the dataset or loader that it iterates over"
            if is_iterator
            else f"keep values in a dict, such as State({name}={{'value': …}})"
        )
        raise TypeError(
            f"State({name}=…) is a {type(target).__qualname__}, without state_dict() and load_state_dict(): {remedy}"
        )


def _state_of(target: Any) -> Any:
    if isinstance(target, dict):
        return dict(target)
    return unwrapped(target).state_dict() if isinstance(target, torch.nn.Module) else target.state_dict()


def plain_content(content: dict[str, Any]) -> dict[str, Any]:
    """Returns what `State.state_dict()` has returned with values that load with `weights_only=True`."""
    objects = {name: to_plain(state, f"the state of {name!r}") for name, state in content["objects"].items()}
    ranks = [
        {
            **own,
            "loaders": {
                name: to_plain(state, f"the state of {name!r} on rank {rank}") for name, state in own["loaders"].items()
            },
        }
        for rank, own in enumerate(content["ranks"])
    ]
    return {**content, "objects": objects, "ranks": ranks}


def _load(targets: Mapping[str, Any], states: Mapping[str, Any], strict: bool) -> None:
    if strict and targets.keys() != states.keys():
        missing = [f"it has no {name!r}" for name in targets if name not in states]
        additional = [f"it also has {name!r}" for name in states if name not in targets]
        raise StateMismatchError("State", missing + additional, "Register the same objects, or pass strict=False")
    for name, target in targets.items():
        if name in states and isinstance(target, dict):
            target.clear()
            target.update(states[name])
        elif name in states:
            load_object(name, target, states[name])


def _read(storage_id: str, file: Path) -> dict[str, Any]:
    if not file.exists():
        raise StateMismatchError("State", [f"{storage_id} has no file {file.name}"], "Begin a new trial")
    content = cast(dict[str, Any], torch.load(file, map_location="cpu", weights_only=True))
    if content["format"] > FORMAT:
        raise CheckpointTooNewError(storage_id, content["format"], FORMAT)
    return content
