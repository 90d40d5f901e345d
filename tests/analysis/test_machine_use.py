"""The figures of all ranks and nodes become one line."""

from __future__ import annotations

import pytest

from core_sdk._analysis.machine_use import MeanFigure, machine_use


def of(rank: int, **figures: float) -> list[MeanFigure]:
    return [MeanFigure(rank, name, value) for name, value in figures.items()]


def test_the_line_says_what_ranks_and_gpus_do() -> None:
    """What ranks use is added up; GPUs have a mean."""
    figures = [
        *of(
            0, process_cpu_util=150.0, workers_cpu_util=310.0, process_rss=2.0**30, cpu_util_simple=40.0, data_wait=2.0
        ),
        *of(1, process_cpu_util=50.0, process_rss=2.0**30, data_wait=38.0),
        *of(0, **{"gpu_util.GPU-0": 90.0, "gpu_used_memory.GPU-0": 2.0**35, "gpu_throttled.GPU-0": 0.0}),
        *of(0, **{"gpu_util.GPU-1": 50.0, "gpu_used_memory.GPU-1": 2.0**35, "gpu_power.GPU-1": 412.4}),
        *of(0, **{"gpu_ecc_errors.GPU-0": 0.0, "gpu_ecc_errors.GPU-1": 2.0}),
    ]

    use = machine_use(figures, mfu=0.413)

    assert use is not None
    assert use.words() == (
        "MFU 41 %; 2 GPUs: 70 % busy, 32.0 GiB, 412 W, 2 memory errors; its ranks use 2.0 cores and 2.0 GiB, "
        "what they have started uses 3.1 cores; the processors are 40 % busy; "
        "rank 1 waits longest for data, 38 %, the others 2.0 %"
    )


@pytest.mark.parametrize(
    ("waits", "words"),
    [
        ([0.2], ""),
        ([38.4], "waits 38 % for data"),
        ([0.0, 0.5], ""),
        ([51.0, 1.0, 3.0], "rank 0 waits longest for data, 51 %, the others 2.0 %"),
    ],
)
def test_a_rank_that_waits_longest_is_named(waits: list[float], words: str) -> None:
    """A wait of less than a hundredth is not worth a word."""
    use = machine_use([figure for rank, wait in enumerate(waits) for figure in of(rank, data_wait=wait)])

    assert use is not None
    assert use.wait_words() == words


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        (
            [of(0, compute=96.0), of(1, compute=50.0), of(2, compute=54.0)],
            "rank 0 computes longest, 96 %, the others 52 %",
        ),
        ([of(0, compute=60.0), of(1, compute=51.0)], ""),
        ([of(0, compute=96.0)], ""),
        ([of(0, **{"gpu_util.GPU-0": 90.0}, compute=96.0), of(1, compute=50.0)], ""),
    ],
)
def test_a_rank_that_computes_longest_is_named(figures: list[list[MeanFigure]], words: str) -> None:
    """The others wait for it. With GPUs nothing is known, since a thread that waits for one computes."""
    use = machine_use([figure for each in figures for figure in each])

    assert use is not None
    assert use.compute_words() == words


def test_nothing_is_said_where_nothing_was_recorded() -> None:
    """A training of less than half a minute has no figures."""
    assert machine_use([]) is None
