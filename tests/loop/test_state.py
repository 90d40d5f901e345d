"""A registry of objects that a training keeps in its checkpoints."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import enum
import random
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
import torch
from core.rank_threads import Rank, Trial
from loop.toy_datasets import Counting
from promises import promise
from stage import read_back
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

import core_sdk as det
from core_sdk.core import Context
from core_sdk.errors import StateMismatchError
from core_sdk.loop import State
from core_sdk.loop._plain import to_plain
from core_sdk.loop._state import restore_random_numbers


class Training:
    """A small training with all kinds of objects."""

    def __init__(self, hidden: int = 4) -> None:
        self.model = nn.Sequential(nn.Linear(3, hidden), nn.BatchNorm1d(hidden), nn.Dropout(), nn.Linear(hidden, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.scheduler = lr_scheduler.StepLR(self.optimizer, step_size=2)
        self.values: dict[str, Any] = {"best": None}
        self.loader = det.loop.resumable(DataLoader(TensorDataset(torch.ones(4)), shuffle=True))

    @property
    def state(self) -> State:
        return State(
            model=self.model,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            values=self.values,
            loader=self.loader,
        )

    def steps(self, num_steps: int) -> list[float]:
        """Trains and returns the losses and other random numbers."""
        seen = []
        for _ in range(num_steps):
            loss = self.model(torch.randn(8, 3)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            seen += [loss.item(), random.random(), float(np.random.random())]
            self.values["best"] = min(seen)
        return seen


@pytest.fixture(autouse=True)
def random_numbers() -> Iterator[None]:
    """Seeds all generators before each test."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    yield


@pytest.fixture
def core_context() -> Iterator[Context]:
    with det.core.init() as core_context:
        yield core_context


def going_on(core_context: Context, storage_id: str, trial_id: int | None = None) -> Context:
    """Returns the Context of a later attempt, or of another trial, that has this checkpoint."""
    core_context.info.latest_checkpoint = storage_id
    if trial_id is not None:
        core_context.info.trial.trial_id = trial_id
    return core_context


@promise("resume-exact")
def test_a_training_goes_on_as_if_it_had_not_been_stopped() -> None:
    """A restored training has the same losses, rates, values and random numbers."""
    training = Training()
    training.steps(3)
    content = read_back(training.state.state_dict())
    expected = training.steps(4), training.scheduler.get_last_lr(), training.values

    resumed = Training()
    resumed.steps(1)
    values = resumed.values
    resumed.state.load_state_dict(content)

    assert (resumed.steps(4), resumed.scheduler.get_last_lr(), values) == expected


def test_a_checkpoint_is_saved_and_found_by_the_next_attempt(core_context: Context) -> None:
    """save() stores a checkpoint and restore() finds it in the next attempt."""
    training = Training()
    assert not training.state.restore(core_context)

    training.steps(3)
    next(training.loader.stream())
    storage_id = training.state.save(core_context, metadata={"note": "good"})
    expected = training.steps(2)
    resumed = Training()

    assert resumed.state.restore(going_on(core_context, storage_id))
    assert resumed.steps(2) == expected
    assert core_context.checkpoint.get_metadata(storage_id) == {"steps_completed": 1, "note": "good"}


def test_a_checkpoint_may_have_further_files(core_context: Context) -> None:
    """`write` adds files to the checkpoint and does not affect the random numbers."""

    def write(directory: Path) -> None:
        (directory / "words.txt").write_text(f"{random.random()}")

    random.seed(3)
    storage_id = Training().state.save(core_context, steps_completed=1, write=write)
    following = random.random()

    with core_context.checkpoint.restore_path(storage_id) as directory:
        assert (directory / "words.txt").read_text() == f"{following}"


class Drawing:
    """An object whose state draws from all generators, as one that builds a model does."""

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": [random.random(), float(np.random.random()), torch.rand(()).item()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


@pytest.mark.parametrize("wait", [True, False])
def test_a_save_leaves_no_trace_in_the_generators(core_context: Context, wait: bool) -> None:
    """Numbers drawn during a save change neither those of the training nor those of a resume."""
    before = read_back(State().state_dict())
    state = State(drawing=Drawing())
    storage_id = state.save(core_context, steps_completed=1, wait=wait, write=lambda directory: torch.rand(3))
    seen = Training().steps(2)
    core_context.checkpoint.wait()

    State().load_state_dict(before)
    assert Training().steps(2) == seen
    assert state.restore(going_on(core_context, storage_id))
    assert Training().steps(2) == seen


def test_the_file_has_the_form_that_is_described(core_context: Context) -> None:
    """The file has the format that docs/format.md describes."""
    storage_id = Training().state.save(core_context)

    with core_context.checkpoint.restore_path(storage_id) as directory:
        content = torch.load(directory / "state.pt", weights_only=True)
    assert (content["format"], content["trial_id"]) == (1, core_context.info.trial.trial_id)
    assert list(content["objects"]) == ["model", "optimizer", "scheduler", "values"]
    assert [(list(rank["random"]), list(rank["loaders"])) for rank in content["ranks"]] == [
        (["python", "torch", "numpy"], ["loader"])
    ]


@promise("background-save-unchanged")
def test_a_save_in_the_background_has_what_there_was_at_the_call(
    core_context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A background save has the values at the call, although the training changes them in place."""
    training, may_write, save_file = Training(), threading.Event(), torch.save
    monkeypatch.setattr(torch, "save", lambda *arguments: may_write.wait() and save_file(*arguments))
    for _ in range(2):
        training.values["nested"] = {"seen": [training.values["best"]]}
        may_write.clear()
        storage_id = training.state.save(core_context, steps_completed=0, wait=False)
        values = copy.deepcopy(training.values)
        expected = training.steps(5)
        training.values["nested"]["seen"].append("later")
        may_write.set()
        resumed = Training()
        resumed.state.restore(going_on(core_context, storage_id))

        assert resumed.values == values
        assert resumed.steps(5) == expected
        core_context.checkpoint.wait()


def test_a_background_save_calls_write_before_it_returns(core_context: Context) -> None:
    """A background save calls `write` in the script's thread before it returns."""
    seen = []

    def write(directory: Path) -> None:
        seen.append(threading.current_thread())
        (directory / "words.txt").write_text("good")

    storage_id = Training().state.save(core_context, steps_completed=0, wait=False, write=write)

    assert seen == [threading.current_thread()]
    with core_context.checkpoint.restore_path(storage_id) as directory:
        assert (directory / "words.txt").read_text() == "good"


def test_a_value_that_cannot_be_kept_is_refused_before_a_background_save_begins(core_context: Context) -> None:
    """A value that cannot be kept is refused at the call of a background save."""
    with pytest.raises(TypeError, match="'best'"):
        State(values={"best": object()}).save(core_context, steps_completed=0, wait=False)

    core_context.checkpoint.wait()


def test_another_trial_has_the_weights_and_begins_all_else_anew(core_context: Context) -> None:
    """Another trial gets the weights, and everything else begins from nothing."""
    training = Training()
    next(training.loader.stream())
    training.steps(3)
    storage_id = training.state.save(core_context)
    other = Training()
    torch_numbers = torch.get_rng_state()

    assert other.state.restore(going_on(core_context, storage_id, trial_id=7))

    assert_equal(other.model.state_dict(), training.model.state_dict())
    assert other.optimizer.state_dict()["state"] == {}
    assert other.scheduler.last_epoch == 0
    assert other.values == {"best": None}
    assert (training.loader.batches, other.loader.batches) == (1, 0)
    assert torch.equal(torch.get_rng_state(), torch_numbers)


def test_what_is_kept_of_a_checkpoint_can_be_chosen(core_context: Context) -> None:
    """An optimizer that is not kept has the learning rate that the script gives it."""

    def made(lr: float) -> tuple[torch.nn.Module, torch.optim.Optimizer, dict[str, int], State]:
        model, values = torch.nn.Linear(1, 1), {"epoch": 0}
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        return model, optimizer, values, State(model=model, optimizer=optimizer, values=values)

    model, _, values, state = made(0.1)
    values["epoch"] = 3
    storage_id = state.save(core_context, steps_completed=1)

    found = {}
    for keep in (None, "all", "model", frozenset({"values"})):
        other, optimizer, others_values, state = made(0.01)
        assert state.restore(going_on(core_context, storage_id), keep=keep)
        has_weights = torch.equal(other.weight, model.weight)  # type: ignore[arg-type]
        found[keep] = (has_weights, optimizer.param_groups[0]["lr"], others_values["epoch"])

    assert found == {
        None: (True, 0.1, 3), "all": (True, 0.1, 3), "model": (True, 0.01, 0), frozenset({"values"}): (False, 0.01, 3),
    }  # fmt: skip
    with pytest.raises(ValueError, match="keep has 'lr'; it may have model, optimizer, values, random"):
        state.restore(core_context, keep={"lr"})
    with pytest.raises(ValueError, match=r"it must be \"all\", \"model\", or a set of names, such as \{'values'\}"):
        state.restore(core_context, keep="values")
    with pytest.raises(TypeError, match='keep is True; it must be "all", "model", or a set of names'):
        state.restore(core_context, keep=True)  # type: ignore[arg-type]


def test_a_checkpoint_of_another_model_is_refused_with_what_differs() -> None:
    """A checkpoint of another model is refused with the names and shapes that differ."""
    content = read_back(Training(hidden=4).state.state_dict())

    with pytest.raises(StateMismatchError) as error:
        Training(hidden=5).state.load_state_dict(content)

    assert "does not fit 'model'" in str(error.value)
    assert "0.weight is 4x3 in the checkpoint and 5x3 here" in str(error.value)
    assert "and 2 more" in str(error.value)


def test_a_checkpoint_of_other_layers_is_refused_with_their_names() -> None:
    """A checkpoint of other layers is refused with the missing and additional names."""
    content = read_back(State(model=nn.ModuleDict({"old": nn.Linear(1, 1), "both": nn.Linear(1, 1)})).state_dict())

    with pytest.raises(StateMismatchError, match=r"the checkpoint has no new\.bias; .* also has old\.bias"):
        State(model=nn.ModuleDict({"new": nn.Linear(1, 1), "both": nn.Linear(1, 1)})).load_state_dict(content)


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        (
            lambda module: torch.optim.SGD(module.parameters()),
            "another optimizer, with the options .*betas.* instead of",
        ),
        (lambda module: torch.optim.Adam([module.weight]), "group 0 has 2 parameters in the checkpoint and 1 here"),
        (
            lambda module: torch.optim.Adam([{"params": [module.weight]}, {"params": [module.bias]}]),
            "1 groups of parameters in the checkpoint and 2 here",
        ),
    ],
)
def test_a_checkpoint_of_another_optimizer_is_refused(
    optimizer: Callable[[nn.Module], torch.optim.Optimizer], words: str
) -> None:
    """A checkpoint of another optimizer is refused."""
    module = nn.Linear(1, 1)
    content = read_back(State(optimizer=torch.optim.Adam(module.parameters())).state_dict())

    with pytest.raises(StateMismatchError, match=words):
        State(optimizer=optimizer(module)).load_state_dict(content)


def test_an_optimizer_may_have_more_options_than_it_had() -> None:
    """A checkpoint whose optimizer has fewer options is accepted."""
    module = nn.Linear(1, 1)
    content = read_back(State(optimizer=torch.optim.Adam(module.parameters())).state_dict())
    del content["objects"]["optimizer"]["param_groups"][0]["maximize"]

    State(optimizer=torch.optim.Adam(module.parameters())).load_state_dict(content)


def test_a_checkpoint_with_other_objects_is_refused_unless_it_need_not_be_strict() -> None:
    """A checkpoint with missing or additional objects is refused unless strict=False."""
    content = read_back(State(model=nn.Linear(1, 1), teacher=nn.Linear(1, 1)).state_dict())
    values = {"kept": 1}
    model = nn.Linear(1, 1)
    state = State(model=model, values=values)

    with pytest.raises(StateMismatchError, match="it has no 'values'; it also has 'teacher'"):
        state.load_state_dict(content)
    state.load_state_dict(content, strict=False)

    assert values == {"kept": 1}
    assert_equal(model.state_dict(), content["objects"]["model"])


def test_a_checkpoint_that_was_not_stored_by_a_state_is_refused(core_context: Context) -> None:
    """A checkpoint without state.pt is refused."""
    with core_context.checkpoint.store_path({"steps_completed": 1}) as (directory, storage_id):
        (directory / "weights.bin").write_bytes(b"1")

    with pytest.raises(StateMismatchError, match=r"has no file state\.pt"):
        Training().state.restore(going_on(core_context, storage_id))


def test_weights_of_a_compiled_model_load_into_a_plain_one_and_back() -> None:
    """State names do not depend on torch.compile()."""
    compiled, plain = torch.compile(nn.Linear(2, 2)), nn.Linear(2, 2)
    content = read_back(State(model=compiled).state_dict())

    State(model=plain).load_state_dict(content)
    State(model=compiled).load_state_dict(read_back(State(model=plain).state_dict()))

    assert list(content["objects"]["model"]) == ["weight", "bias"]


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_weights_of_a_distributed_model_load_into_a_plain_one() -> None:
    """The state of a DistributedDataParallel model loads into a plain model."""
    content = read_back(State(model=nn.parallel.DistributedDataParallel(nn.Linear(2, 2))).state_dict())

    State(model=nn.Linear(2, 2)).load_state_dict(content)


@pytest.mark.usefixtures("process_group")
def test_a_model_that_is_split_over_ranks_is_refused() -> None:
    """A tensor that is sharded over ranks is refused with an alternative."""
    part = distribute_tensor(torch.ones(2), init_device_mesh("cpu", (1,)))

    with pytest.raises(TypeError, match=r"model\['weight'\] is a tensor that is split .*5_sharded\.py"):
        to_plain({"weight": part}, "model")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (0.5, "keep values in a dict"),
        (nn.functional.relu, "without state_dict"),
        (DataLoader(Counting(1)), r"register loop\.resumable\(loader\)"),
    ],
)
def test_an_object_that_cannot_be_kept_is_refused_at_once(target: Any, words: str) -> None:
    """An object without a state is refused when the State is made."""
    with pytest.raises(TypeError, match=words):
        State(thing=target)


def test_save_asks_for_the_steps_if_no_loader_counts_them(core_context: Context) -> None:
    """Without a loader save() needs steps_completed."""
    with pytest.raises(ValueError, match="steps_completed"):
        State(model=nn.Linear(1, 1)).save(core_context)


class Renumbered(Counting):
    """A dataset whose state a checkpoint cannot hold."""

    def state_dict(self) -> dict[str, Any]:
        return {"next": iter([])}


def test_a_loaders_state_that_could_not_be_loaded_again_is_refused(core_context: Context) -> None:
    """A loader's state that cannot be kept is refused."""
    loader = det.loop.resumable(DataLoader(Renumbered(4), 2))
    next(loader.stream())

    with pytest.raises(TypeError, match=r"the state of 'loader' on rank 0\[.*list_iterator"):
        State(loader=loader).save(core_context)


def test_each_rank_goes_on_with_the_data_that_it_reads_by_itself(tmp_path: Path) -> None:
    """If each rank reads its own data, a checkpoint has the loader's state of every rank."""

    def train(rank: Rank, storage_id: str | None) -> tuple[str | None, list[int]]:
        core_context = cast(Context, SimpleNamespace(**vars(rank), info=info(storage_id)))
        dataset = Counting(100 * (rank.number + 1), shuffles=False)
        loader = det.loop.resumable(DataLoader(dataset, 2), distributed=rank.distributed)
        state = State(loader=loader)
        if not state.restore(core_context):
            next(loader.stream())
            if rank.number == 1:
                dataset.load_state_dict({"next": 50, "ahead": []})
            next(loader.stream())
            storage_id = state.save(core_context)
        return storage_id, next(loader.stream())[1].tolist()

    def info(storage_id: str | None) -> Any:
        return SimpleNamespace(latest_checkpoint=storage_id, trial=SimpleNamespace(trial_id=1))

    trial = Trial(tmp_path / "trial", 2)
    saved = trial.run(lambda rank: train(rank, None))
    resumed = trial.run(lambda rank: train(rank, saved[0][0]))

    assert saved == resumed
    assert saved[0] != saved[1]


class Phase(enum.Enum):
    WARM = "warm"


class Level(enum.IntFlag):
    LOW = 1
    HIGH = 2


class Extent(NamedTuple):
    low: float
    high: Any


@dataclasses.dataclass(frozen=True)
class Best:
    loss: float
    extents: list[Extent]


@dataclasses.dataclass(slots=True)
class Point:
    x: np.float32

    def __post_init__(self) -> None:
        MADE.append(self)


MADE: list[Point] = []


@dataclasses.dataclass
class Renamed:
    """A class whose name leads to another class."""


Renamed.__qualname__ = "Point"

KEPT: dict[str, Any] = {
    "numbers": [
        np.float64(0.1),
        np.float32("nan"),
        np.int64(2**40),
        np.bool_(True),
        np.complex64(1j),
        np.longdouble(1),
    ],
    "texts": (np.str_("text"), np.bytes_(b"bytes")),
    "times": [np.datetime64("2026-01-01", "ns"), np.timedelta64(5, "s")],
    "arrays": {"empty": np.empty((0, 3)), "turned": np.arange(6).reshape(2, 3).T, "big endian": np.ones(2, ">i4")},
    "deque": deque([np.float64(1), {"a": deque()}], maxlen=3),
    "sets": [frozenset({1, "a"}), {(1, 2)}, {np.int64(3)}],
    "range": range(1, 10, 3),
    "defaultdict": defaultdict(list, {"a": [np.int8(1)]}),
    "dates": [datetime.datetime(2026, 1, 2, 3, 4, 5, 6), datetime.date(2026, 1, 2), datetime.time(1, 2)],
    "zones": [datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)],
    "timedelta": datetime.timedelta(days=-1, microseconds=3),
    "path": Path("a/b"),
    "decimal": Decimal("0.10"),
    "enums": [Phase.WARM, Level.LOW | Level.HIGH],
    "dataclasses": [Best(0.5, [Extent(0.0, np.float64(1))]), Point(np.float32(2))],
}


@pytest.mark.parametrize("name", KEPT)
def test_values_that_torch_would_not_load_are_kept_exactly(core_context: Context, name: str) -> None:
    """Values that torch would not load are stored as plain values and restored exactly."""
    values = {"value": KEPT[name]}
    state = State(values=values)
    storage_id = state.save(core_context, steps_completed=1)
    values.clear()

    state.restore(going_on(core_context, storage_id))

    assert typed(values["value"]) == typed(KEPT[name])
    assert len(MADE) == 1  # no `__init__` has run


def typed(value: Any) -> Any:
    """Returns text of the value, with the types of numbers in containers and the bytes of arrays."""
    if isinstance(value, np.ndarray | np.generic):
        return type(value).__name__, value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return type(value), [(key, typed(item)) for key, item in value.items()]
    if isinstance(value, list | tuple | set | frozenset | deque):
        return type(value), getattr(value, "maxlen", None), [typed(item) for item in value]
    if dataclasses.is_dataclass(value):
        return type(value), [typed(getattr(value, field.name)) for field in dataclasses.fields(value)]
    return type(value), repr(value)


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"lr": [0.1, object()]}, r"\['lr'\]\[1\] is a builtins\.object"),
        ({"mean": {"x": np.array([None])}}, r"\['mean'\]\['x'\] is a numpy\.ndarray"),
        ({"names": {Path("a"): 1}}, r"\['names'\]'s key .* is a pathlib"),
        ({"names": {"$value": 1}}, r"\['names'\]'s key '\$value'"),
        ({"order": iter([])}, r"\['order'\] is a builtins\.list_iterator"),
        ({"deque": deque([object()])}, r"\['deque'\]\.items\[0\] is a builtins\.object"),
        ({"hidden": Renamed()}, r"\['hidden'\] is a .*Point"),
        ({"made": defaultdict(lambda: 1)}, r"\['made'\] is a collections\.defaultdict"),
    ],
)
def test_what_could_not_be_loaded_again_is_refused_at_the_save(
    core_context: Context, values: dict[str, Any], place: str
) -> None:
    """A value that could not be loaded again is refused when it is saved, with its place."""
    with pytest.raises(TypeError, match=f"the state of 'values'{place}"):
        State(values=values).save(core_context, steps_completed=1)


def test_a_value_whose_class_is_gone_is_named(core_context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """No module is imported for it: that would run code that the checkpoint names."""
    values = {"phase": Phase.WARM}
    state = State(values=values)
    storage_id = state.save(core_context, steps_completed=1)
    monkeypatch.delattr(sys.modules[__name__], "Phase")

    with pytest.raises(StateMismatchError, match=r"a value of the class .*test_state\.Phase\. Define or import"):
        state.restore(going_on(core_context, storage_id))


def test_a_checkpoint_is_loaded_without_running_code_of_its_own(core_context: Context) -> None:
    """Every value that is accepted is loaded by `weights_only=True`, as it was."""
    values: dict[str, Any] = {
        "scalars": [None, True, 2**100, float("inf"), 1j, "text", b"bytes", bytearray(b"more")],
        "torch": [torch.float16, torch.Size([1, 2]), torch.device("cpu"), torch.ones(2), nn.Parameter(torch.ones(1))],
        "nested": ({1, 2}, {(1, "a"): [()]}),
    }
    state = State(values=values)
    storage_id = state.save(core_context, steps_completed=1)
    expected = copy.deepcopy(values)
    values.clear()

    state.restore(going_on(core_context, storage_id))

    assert repr(values) == repr(expected)


def schedulers() -> list[Callable[[torch.optim.Optimizer], Any]]:
    return [
        lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
        lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [2, 4]),
        lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10, cycle_momentum=False),
        lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.1, 0.2, cycle_momentum=False),
        lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3),
        lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer),
        lambda optimizer: lr_scheduler.SequentialLR(
            optimizer, [lr_scheduler.ConstantLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)], [2]
        ),
    ]


@pytest.mark.parametrize("index", range(len(schedulers())))
@pytest.mark.parametrize("optimizer_class", [torch.optim.SGD, torch.optim.AdamW, torch.optim.LBFGS])
def test_torchs_own_objects_are_plain(index: int, optimizer_class: type[torch.optim.Optimizer]) -> None:
    """The states of torch's optimizers, schedulers and scalers are stored unchanged."""
    module = nn.Linear(1, 1)
    optimizer = optimizer_class(module.parameters(), lr=0.1)  # type: ignore[call-arg]
    scheduler = schedulers()[index](optimizer)
    scaler = torch.amp.GradScaler("cpu")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = module(torch.ones(1, 1)).sum().square()
        loss.backward()
        return loss

    optimizer.step(closure)
    scheduler.step(*([0.5] if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else []))

    for name, target in {"optimizer": optimizer, "scheduler": scheduler, "scaler": scaler, "model": module}.items():
        state = target.state_dict()
        assert to_plain(state, name) is state


def test_each_rank_goes_on_with_random_numbers_of_its_own() -> None:
    """Each rank restores its own random numbers, and new ranks get distinct ones."""
    states = []
    for rank in range(2):
        torch.manual_seed(rank)
        random.seed(rank)
        states.append(det.loop._rng.capture())

    def drawn(rank: int) -> tuple[float, float]:
        restore_random_numbers(states, rank)
        return torch.rand(()).item(), random.random()

    torch.manual_seed(1)
    random.seed(1)
    expected = torch.rand(()).item(), random.random()
    assert drawn(1) == expected
    assert len({drawn(rank) for rank in range(4)}) == 4
    assert [drawn(rank) for rank in range(4)] == [drawn(rank) for rank in range(4)]


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
