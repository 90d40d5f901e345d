"""How several ranks end: what befalls one of them befalls the trial, and the trial's record says whom."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from core.rank_processes import Ranks, codes, the_trial
from promises import promise
from saving import checkpoint_ids

from core_sdk._ground.records import Ended
from core_sdk._home import Home
from core_sdk._home.journal import read_records
from core_sdk._home.storage import DirectoryStorage


def recorded_error(home: Home) -> str:
    """Returns the error in the chief's journal."""
    (ended,) = [one for one in read_records(home.trial(1).journal_path(1)) if isinstance(one, Ended)]
    return ended.error or ""


def test_an_error_on_one_rank_is_everyones(ranks: Ranks, home: Home) -> None:
    """The next collective raises one rank's error with its traceback, and the trial's reason names the rank."""
    ended = ranks.run("""
        def shard():
            raise ValueError("no such shard")

        with core.init(distributed=distributed) as context:
            if rank == 1:
                shard()
            distributed.allgather(rank)
    """)

    trial = the_trial()
    assert codes(ended) == [1, 1], ended
    assert "RankFailedError: rank 1 failed: ValueError: no such shard" in ended[0].errors
    assert "in shard" in ended[0].errors
    assert (trial.state.name, trial.reason) == ("ERROR", "rank 1 failed: ValueError: no such shard")
    assert "in shard" in recorded_error(home)
    assert "distributed.allgather(rank)" in recorded_error(home)


def test_an_error_of_the_chief_reaches_the_others(ranks: Ranks) -> None:
    """An error of the chief reaches the other ranks and is the trial's reason."""
    ended = ranks.run("""
        with core.init(distributed=distributed) as context:
            if rank == 0:
                raise ValueError("bad batch")
            distributed.broadcast(None)
    """)

    assert codes(ended) == [1, 1], ended
    assert "RankFailedError: rank 0 failed: ValueError: bad batch" in ended[1].errors
    assert (the_trial().state.name, the_trial().reason) == ("ERROR", "ValueError: bad batch")


@pytest.mark.parametrize("delay_s", [0.0, 0.7])
def test_a_chief_that_ends_well_hears_how_the_others_ended(ranks: Ranks, home: Home, delay_s: float) -> None:
    """If another rank fails after the last collective, the trial fails although the chief ended well."""
    ended = ranks.run(f"""
        with core.init(distributed=distributed) as context:
            distributed.allgather(rank)
            if rank == 1:
                time.sleep({delay_s})
                raise ValueError("could not save")
    """)

    assert codes(ended) == [0, 1], ended
    assert (the_trial().state.name, the_trial().reason) == ("ERROR", "rank 1 failed: ValueError: could not save")
    assert "raise ValueError" in recorded_error(home)


def test_a_chief_that_leaves_the_others_alone_fails_the_trial(ranks: Ranks) -> None:
    """If the chief ends while another rank still calls a collective, the trial fails."""
    ended = ranks.run("""
        with core.init(distributed=distributed) as context:
            if rank == 1:
                distributed.allgather(rank)
    """)

    assert codes(ended) == [0, 1], ended
    assert the_trial().state.name == "ERROR"
    assert the_trial().reason.startswith("rank 1 failed: core_sdk.errors.RankLeftError")


def test_a_rank_that_is_killed_fails_the_trial(ranks: Ranks) -> None:
    """A rank that is killed after the last collective still fails the trial."""
    ended = ranks.run("""
        with core.init(distributed=distributed) as context:
            distributed.allgather(rank)
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
    """)

    assert codes(ended) == [0, -signal.SIGKILL], ended
    assert the_trial().state.name == "ERROR"
    assert "rank 1 (process" in the_trial().reason


def test_the_cause_is_told_with_its_consequence(ranks: Ranks, home: Home) -> None:
    """When another rank's error causes the chief's, the reason is the first error and the record has both."""
    ended = ranks.run("""
        with core.init(distributed=distributed) as context:
            if rank == 1:
                raise ValueError("out of range")
            while True:
                try:
                    distributed.broadcast(None)
                except RankFailedError:
                    break
            raise ConnectionError("connection closed by peer") from None
    """)

    assert codes(ended) == [1, 1], ended
    assert the_trial().reason == "rank 1 failed: ValueError: out of range"
    assert "ConnectionError: connection closed by peer" in recorded_error(home)


def test_an_error_that_all_ranks_make_is_told_once(ranks: Ranks, home: Home) -> None:
    """If all ranks raise the same error, only the chief's is recorded."""
    ended = ranks.run("""
        with core.init(distributed=distributed) as context:
            while rank == 0:
                try:
                    distributed.broadcast(None)
                except RankFailedError:
                    break
            raise FileNotFoundError("no data")
    """)

    assert codes(ended) == [1, 1], ended
    assert the_trial().reason == "FileNotFoundError: no data"
    assert "rank 1" not in recorded_error(home)


def test_a_stop_in_which_a_rank_fails_is_no_pause(ranks: Ranks) -> None:
    """If a rank fails after a stop, the trial is an error and not paused."""
    ended = ranks.run("""
        with core.init(distributed=distributed, deadline=0.0) as context:
            while not context.preempt.should_preempt():
                time.sleep(0.01)
            if rank == 1:
                raise OSError("disk full")
    """)

    assert codes(ended) == [0, 1], ended
    assert (the_trial().state.name, the_trial().reason) == ("ERROR", "rank 1 failed: OSError: disk full")


@pytest.mark.parametrize("who", ["True", "rank == 0", "rank == 1"])
@pytest.mark.parametrize("then", ["distributed.allgather(None)", "pass"])
def test_hyperparameters_that_one_rank_cannot_train_are_the_trials(ranks: Ranks, who: str, then: str) -> None:
    """InvalidHP on any rank completes the trial with that reason, and no rank fails."""
    ended = ranks.run(f"""
        with core.init(distributed=distributed) as context:
            if {who}:
                raise InvalidHP("too wide")
            {then}
    """)

    assert codes(ended) == [0, 0], ended
    assert (the_trial().state.name, the_trial().reason) == ("COMPLETED", "invalid hyperparameters: too wide")


@pytest.mark.parametrize("who", ["rank == 0", "rank == 1", "True"])
def test_ctrl_c_on_any_rank_cancels_the_trial(ranks: Ranks, who: str) -> None:
    """Ctrl-C on one rank or on all of them cancels the trial."""
    ranks.run(
        f"""
        with core.init(distributed=distributed) as context:
            distributed.allgather(rank)
            if {who}:
                raise KeyboardInterrupt
            distributed.allgather(rank)
        """
    )

    assert the_trial().state.name == "CANCELED"


def test_a_rank_that_ends_late_does_not_keep_the_chief_for_long(ranks: Ranks, tmp_path: Path) -> None:
    """The chief does not wait long for a rank that ends late."""
    processes = ranks.start("""
        with core.init(distributed=distributed) as context:
            if rank == 1:
                while not Path("go").exists():
                    time.sleep(0.01)
    """)

    chief = ranks.wait(processes[0])
    (tmp_path / "go").touch()

    assert chief.code == 0
    assert the_trial().state.name == "COMPLETED"
    assert ranks.wait(processes[1]).code == 0


@promise("silent-rank-named")
@pytest.mark.parametrize("frozen", [0, 2])
def test_a_save_does_not_wait_for_a_frozen_rank(ranks: Ranks, home: Home, frozen: int) -> None:
    """After the timeout, a save fails on the other ranks, names the frozen rank and leaves nothing visible."""
    source = f"""
        from core_sdk._home.storage import DirectoryStorage

        stage = DirectoryStorage.stage
        def stage_and_freeze(storage, storage_id, **options):
            staging = stage(storage, storage_id, **options)
            seal = staging.seal
            def freeze():
                os.kill(os.getpid(), signal.SIGSTOP)
                return seal()
            if rank == {frozen}:
                staging.seal = freeze
            return staging
        DirectoryStorage.stage = stage_and_freeze

        with core.init(distributed=distributed, name="frozen") as context:
            with context.checkpoint.store_path({{"steps_completed": 1}}, shard=True) as (path, _):
                (path / f"{{rank}}.bin").write_bytes(b"x")
        """
    processes = ranks.start(source, size=3, timeout_s=3)

    ended = [ranks.wait(process) for rank, process in enumerate(processes) if rank != frozen]

    for each in ended:
        assert each.code == 1
        assert f"rank {frozen} (" in each.errors
        assert "does not answer: it is stopped" in each.errors
    assert checkpoint_ids(DirectoryStorage(home.checkpoints)) == []


@promise("silent-rank-named")
def test_a_save_waits_for_a_rank_that_is_only_slow(ranks: Ranks, home: Home) -> None:
    """A save waits for a slow rank longer than the timeout, since its files may be large."""
    source = """
        from core_sdk._home.storage.directory._staging import DirectoryStaging

        seal = DirectoryStaging.seal
        def seal_slowly(staging):
            time.sleep(7 if rank == 1 else 0)
            return seal(staging)
        DirectoryStaging.seal = seal_slowly

        with core.init(distributed=distributed, name="slow") as context:
            with context.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, _):
                (path / f"{rank}.bin").write_bytes(b"x")
        """

    ended = [ranks.wait(process) for process in ranks.start(source, timeout_s=2)]

    assert codes(ended) == [0, 0], ended
    assert len(checkpoint_ids(DirectoryStorage(home.checkpoints))) == 1
