"""A trial has one seed, from which a script derives its order, its random numbers and its losses."""

from __future__ import annotations

import logging
import random
from typing import Any

import numpy as np
import pytest
import torch
from core.rank_processes import Ranks
from torch.utils.data import DataLoader, TensorDataset

from core_sdk import core, loop
from core_sdk._ground.records import MAX_SEED
from core_sdk._home import Home
from core_sdk.experimental import core_v2


def trained(**arguments: Any) -> list[float]:
    """Trains a small model as a script of one's own does, and returns the losses."""
    with core.init(**arguments) as context:
        loop.seed_all(context.info.trial.trial_seed)
        data = TensorDataset(torch.linspace(-1, 1, 32).unsqueeze(1))
        model = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for (batch,) in loop.resumable(DataLoader(data, batch_size=4, shuffle=True)):
            loss = torch.nn.functional.mse_loss(model(batch), 2 * batch * random.random() + np.random.random())
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item())
    return losses


def test_two_runs_of_one_seed_have_the_same_losses(home: Home) -> None:
    """Equal seeds give equal losses, and other seeds or none give others; loaders follow the seed too."""
    first, second, other, none, again = (trained(**each) for each in ({"seed": 7}, {"seed": 7}, {"seed": 8}, {}, {}))

    assert first == second
    assert len({tuple(each) for each in (first, other, none, again)}) == 4
    assert home.trial(1).read_record().seed == 7


def test_init_seeds_no_generators() -> None:
    """init() does not seed the random generators of the script."""
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)

    with core.init(seed=7):
        assert torch.rand(1) == expected


def test_the_seed_of_an_older_style_is_recorded(home: Home) -> None:
    with core_v2.init_context(config=core_v2.Config(seed=7)):
        assert home.trial(1).read_record().seed == 7


@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [
        (-1, ValueError, "seed is -1; it must be from 0 to 2147483647"),
        (MAX_SEED + 1, ValueError, "seed is 2147483648"),
        (True, TypeError, "seed is True; it must be an integer"),
        (1.0, TypeError, "seed is 1.0; it must be an integer"),
        ("7", TypeError, "seed is '7'; it must be an integer"),
    ],
)
def test_a_seed_that_is_none_is_refused(home: Home, seed: Any, error: type[Exception], message: str) -> None:
    """An invalid seed is refused and nothing is recorded."""
    with pytest.raises(error, match=message):
        core.init(seed=seed)

    assert not home.root.exists()


@pytest.mark.parametrize("seed", [0, MAX_SEED, np.int64(5)])
def test_every_integer_of_the_range_is_a_seed(home: Home, seed: int) -> None:
    with core.init(seed=seed) as context:
        assert context.info.trial.trial_seed == seed


def test_a_trial_that_is_resumed_keeps_its_seed(caplog: pytest.LogCaptureFixture) -> None:
    """A resumed trial keeps its seed, and a warning names both if the script gives another one."""
    seeds = []
    with caplog.at_level(logging.WARNING, "core_sdk"):
        for seed in (7, 7, None, 8):
            with core.init(job_id="job", seed=seed) as context:
                seeds.append(context.info.trial.trial_seed)

    assert seeds == [7, 7, 7, 7]
    assert [message for message in caplog.messages if "seed" in message] == [
        "trial 1 keeps the seed 7, with which it began: the script's seed=8 is not used. A new trial can have another "
        "seed"
    ]


def test_ranks_that_give_different_seeds_are_refused(ranks: Ranks, home: Home) -> None:
    """Ranks that give different seeds are refused."""
    ended = ranks.run("core.init(distributed=distributed, seed=rank)")

    assert ["call init() with different seed: 0 on rank 0, 1 on rank 1" in one.errors for one in ended] == [True, True]
    assert home.trial_ids(include_deleted=True) == []
