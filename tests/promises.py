"""The mark of a test that holds a promise of docs/contract.md."""

from __future__ import annotations

import pytest


def promise(*names: str) -> pytest.MarkDecorator:
    """Marks a test that holds these promises; tests/contract/test_contract.py compares the names with the page."""
    return pytest.mark.promise(*names)
