"""Environments with real frameworks, for those tests that need one; they are skipped, loudly, where it is not there."""

from __future__ import annotations

import pytest
from frameworks.environments import FrameworkEnvironment, environment


@pytest.fixture
def deepspeed() -> FrameworkEnvironment:
    return _installed(environment("deepspeed"))


@pytest.fixture
def horovod() -> FrameworkEnvironment:
    return _installed(environment("horovod"))


def _installed(found: FrameworkEnvironment) -> FrameworkEnvironment:
    if not found.is_installed:
        pytest.skip(found.why_not_tested())
    return found
