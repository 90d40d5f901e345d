"""The home of these tests, which is there from the beginning."""

from __future__ import annotations

import pytest

from core_sdk._home import Home


@pytest.fixture
def home(home: Home) -> Home:
    return Home.create(home.root)
