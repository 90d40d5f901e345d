"""What the tests of the loop share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytorch.ranks import Ranks, warm_ranks


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Runs functions of tests on several ranks."""
    with warm_ranks(tmp_path_factory.mktemp("ranks")) as warm:
        yield warm
