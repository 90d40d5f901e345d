"""`init()` on several ranks: all begin together, or none does."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from core.rank_processes import Ranks, codes, the_trial

from core_sdk import core
from core_sdk._distributed import DistributedContext, SoloChannel
from core_sdk._home import Home
from core_sdk._home.attempts.definition import Definition
from core_sdk.core._attempt import claim_together
from core_sdk.errors import RankDiedError, SeveralRanksError

T = TypeVar("T")
RunScript = Callable[..., tuple[int, str, str]]


def test_several_ranks_without_a_context_are_refused(run_script: RunScript, home: Home) -> None:
    """Several ranks without a DistributedContext are refused, as each would record its own trial."""
    script = "from core_sdk import core\ncore.init()"

    code, _, errors = run_script(script, RANK="1", WORLD_SIZE="2", LOCAL_RANK="1")

    assert code == 1
    assert "SeveralRanksError: 2 ranks were started, and init() was called without a DistributedContext" in errors
    assert not home.root.exists()


def test_a_rank_that_lightning_started_is_refused(run_script: RunScript, home: Home) -> None:
    """A second rank that Lightning started without RANK is refused."""
    script = "from core_sdk import core\ncore.init()"
    variables = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "43217",
        "NODE_RANK": "0",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "2",
    }

    code, _, errors = run_script(script, **variables)

    assert code == 1
    assert "SeveralRanksError: 2 ranks were started" in errors
    assert "python -m launch.torch_distributed --nproc-per-node=2 train.py" in errors
    assert not home.root.exists()


def test_a_rank_of_a_process_group_needs_a_context(ranks: Ranks, home: Home) -> None:
    """init() without a DistributedContext is refused in a process group, whatever started its ranks."""
    ended = ranks.run(
        """
        import torch.distributed as dist
        dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=size)
        core.init()
        """
    )

    assert ["SeveralRanksError: 2 ranks were started" in one.errors for one in ended] == [True, True]
    assert not home.root.exists()


def test_torch_means_the_ranks_of_a_process_group(ranks: Ranks, home: Home) -> None:
    """`distributed="torch"` joins the ranks of torch's process group, whatever started them."""
    ended = ranks.run(
        """
        import torch.distributed as dist
        dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=size)
        with core.init(distributed="torch") as context:
            print(context.distributed.rank, context.distributed.size)
        """
    )

    assert [one.output.splitlines() for one in ended] == [["0 2"], ["1 2"]], ended
    assert home.trial_ids() == [1]


def test_torch_means_a_single_rank_without_a_launcher(home: Home) -> None:
    """A script with `distributed="torch"` that is started alone is a training of one rank; other words are refused."""
    with core.init(distributed="torch") as context:
        assert context.distributed.size == 1

    with pytest.raises(ValueError, match="must be a DistributedContext or \"torch\", not 'mpi'"):
        core.init(distributed="mpi")  # type: ignore[arg-type]


def test_several_slots_without_a_context_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Home
) -> None:
    """A run info with several slots requires a DistributedContext."""
    run_info = tmp_path / "run.json"
    run_info.write_text('{"slot_ids": [0, 1, 2]}')
    monkeypatch.setenv("CORE_SDK_RUN_INFO", str(run_info))

    with pytest.raises(SeveralRanksError, match="the trial has 3 slots, and its command has started one process"):
        core.init()

    assert not home.root.exists()


BAD_ARGUMENTS = {
    "{'hparams': {b'a': 1}}": "TypeError",
    "{'name': ''}": "InvalidNameError",
    "{'max_length': 0}": "ValueError",
    "{'deadline': float('nan')}": "ValueError",
    "{'preempt_mode': 'SOMETIMES'}": "ValueError",
    "{'checkpoint_storage': '/proc/nowhere'}": "StorageError",
    "{'checkpoint_storage': 'ftp://a'}": "UnknownStorageError",
}


def test_what_one_rank_was_given_wrong_fails_all_at_once(ranks: Ranks, home: Home) -> None:
    """A bad argument on one rank raises there and fails the others with that rank's number."""
    ended = ranks.run(f"""
        for bad in (0, 1):
            for arguments in ({", ".join(BAD_ARGUMENTS)}):
                try:
                    core.init(distributed=distributed, **(arguments if rank == bad else {{}}))
                except RankFailedError as error:
                    print(bad, "rank", error.rank, error.error_text.partition(":")[0].rpartition(".")[2])
                except Exception as error:
                    print(bad, "self", type(error).__name__)
    """)

    own = [[f"{bad} self {error}" for error in BAD_ARGUMENTS.values()] for bad in (0, 1)]
    others = [[f"{bad} rank {bad} {error}" for error in BAD_ARGUMENTS.values()] for bad in (0, 1)]
    assert ended[0].output.splitlines() == [*own[0], *others[1]], ended
    assert ended[1].output.splitlines() == [*others[0], *own[1]], ended
    assert home.trial_ids(include_deleted=True) == []


def test_contradictory_arguments_are_named_on_all_ranks(ranks: Ranks, home: Home) -> None:
    """Arguments that must agree on all ranks are compared, and the error names the values by rank."""
    ended = ranks.run("""
        for arguments in (
            {"preempt_mode": core.PreemptMode.ChiefOnly if rank else core.PreemptMode.WorkersAskChief},
            {"tensorboard_mode": core.TensorboardMode.MANUAL if rank else core.TensorboardMode.AUTO},
            {"checkpoint_storage": f"storage of {rank}"},
        ):
            try:
                core.init(distributed=distributed, **arguments)
            except ValueError as error:
                print(error)
    """)

    modes, boards, storages = ended[0].output.splitlines()
    assert ended[1].output == ended[0].output, ended
    assert modes.startswith("the ranks call init() with different preempt_mode: <PreemptMode.WorkersAskChief: ")
    assert modes.endswith("on rank 0, <PreemptMode.ChiefOnly: 'CHIEF_ONLY'> on rank 1. Give the same on all ranks.")
    assert "tensorboard_mode" in boards
    assert "storage%20of%200' on rank 0, " in storages
    assert home.trial_ids(include_deleted=True) == []


def test_the_chiefs_description_of_the_trial_stands(ranks: Ranks) -> None:
    """The chief's name, hyperparameters and seed are used by all ranks."""
    ended = ranks.run("""
        with core.init(distributed=distributed, name=f"of {rank}", hparams={"rank": rank}) as context:
            print(context.info.trial.hparams, context.info.trial.trial_seed)
    """)

    assert ended[0].output == ended[1].output
    assert (the_trial().hparams, the_trial().experiment_name) == ({"rank": 0}, "of 0")


def test_a_home_that_the_chief_cannot_use_fails_all(ranks: Ranks, home: Home, tmp_path: Path) -> None:
    """If the chief cannot use its home, all ranks fail and no home is created."""
    ended = ranks.run("core.init(distributed=distributed)", variables={0: {"CORE_SDK_HOME": "/proc/nowhere"}})

    assert codes(ended) == [1, 1], ended
    assert "HomeNotWritableError" in ended[0].errors
    assert "RankFailedError: rank 0 failed: core_sdk.errors.HomeNotWritableError" in ended[1].errors
    assert not home.root.exists()


def test_a_rank_that_dies_before_init_leaves_no_trial(ranks: Ranks, home: Home) -> None:
    """If a rank dies before init(), the chief raises and records no trial."""
    ended = ranks.run("""
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        core.init(distributed=distributed)
    """)

    assert codes(ended) == [1, -signal.SIGKILL], ended
    assert "RankDiedError: rank 1" in ended[0].errors
    assert home.trial_ids(include_deleted=True) == []


class GoneMeanwhile(SoloChannel):
    """A channel that loses a rank while the chief claims the attempt."""

    def broadcast_outcome(self, compute: Callable[[], T], *, is_patient: bool = False) -> T:
        compute()
        raise RankDiedError(1, "process 5 on node1")


def test_a_claim_that_not_all_learn_of_is_given_back(home: Home) -> None:
    """A new trial is removed if not all ranks learn of it."""
    Home.create(home.root)
    distributed = DistributedContext()
    distributed.channel = GoneMeanwhile()

    with pytest.raises(RankDiedError):
        claim_together(home, None, Definition(name="a"), distributed)

    assert home.trial_ids() == []
    assert core.init(name="a").info.trial.trial_id == 2


def test_a_trial_of_an_earlier_start_is_not_given_back(home: Home) -> None:
    """If a rank is lost in a later start, the trial and its records stay."""
    with core.init(name="a", job_id="mine") as context:
        context.train.report_training_metrics(1, {"loss": 0.5})
    distributed = DistributedContext()
    distributed.channel = GoneMeanwhile()

    with pytest.raises(RankDiedError):
        claim_together(home, None, Definition(job_id="mine"), distributed)

    assert home.trial(1).attempts() == [1, 2]
