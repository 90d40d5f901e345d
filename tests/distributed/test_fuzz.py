"""Whatever comes over a connection: nothing crashes, nothing is unpickled, and no memory is taken for it."""

from __future__ import annotations

import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from distributed.fuzzing import Corpus, Tally, feed_decoder, feed_link, feed_reception

from core_sdk._distributed.transport._frames import Seal

COUNTS = pytest.mark.parametrize("num_strings", [2_000, 200_000], ids=["some", "1,000,000 in all"])
FEEDS = pytest.mark.parametrize("feed", ["tcp link", "unix link", "stranger", "broken rank", "news"])


@pytest.fixture
def corpus(tmp_path: Path) -> Iterator[Corpus]:
    """Yields the corpus and checks that none of its pickles was loaded."""
    crater = tmp_path / "crater"
    yield Corpus(crater)
    assert not crater.exists(), "something was unpickled"


@COUNTS
@FEEDS
def test_fuzzed_frames_crash_nothing_and_are_not_unpickled(corpus: Corpus, feed: str, num_strings: int) -> None:
    """Mutated frames are refused without a crash, an unpickling, a leak or much memory."""
    generator = random.Random(feed)
    unsealed, sealed = corpus.unix, corpus.sealed()
    feeds: dict[str, Callable[[], Tally]] = {
        "tcp link": lambda: feed_link(generator, sealed, Seal(send_key=b"other", receive_key=b"one")),
        "unix link": lambda: feed_link(generator, unsealed, None),
        "stranger": lambda: feed_reception(generator, unsealed, holds_key=False),
        "broken rank": lambda: feed_reception(generator, unsealed, holds_key=True),
        "news": lambda: feed_decoder(generator, corpus.messages),
    }
    before, peak_before_bytes = num_descriptors(), peak_bytes()

    tallies = [feeds[feed]() for _ in range(num_strings)]

    assert sum(tally.refused for tally in tallies) > num_strings / 5
    if feed == "stranger":
        assert sum(tally.understood for tally in tallies) == 0
    assert num_descriptors() == before
    assert peak_bytes() - peak_before_bytes < 200_000_000


def num_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def peak_bytes() -> int:
    """Returns the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
