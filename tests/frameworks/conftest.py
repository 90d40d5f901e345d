"""Environments with real frameworks, for those tests that need one."""

from __future__ import annotations

import pytest
from frameworks.environments import FrameworkEnvironment, environment


@pytest.fixture
def deepspeed() -> FrameworkEnvironment:
    return environment("deepspeed")


@pytest.fixture
def horovod() -> FrameworkEnvironment:
    return environment("horovod")


@pytest.fixture
def callbacks() -> FrameworkEnvironment:
    return environment("callbacks")
