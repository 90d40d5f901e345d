"""Errors, as values."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from core_sdk import errors
from core_sdk.errors import (
    CheckpointDamagedError,
    CoreSDKError,
    HomeNotWritableError,
    MissingDependencyError,
    NotEnoughSpaceError,
    RankFailedError,
    UnknownStorageError,
)


@pytest.mark.parametrize(
    "error",
    [
        CheckpointDamagedError("a", "model.bin", "is missing"),
        HomeNotWritableError(Path("/home"), "it is read-only"),
        MissingDependencyError("boto3", "s3", "S3"),
        NotEnoughSpaceError(Path("/disk"), 5, 3),
        RankFailedError(1, "ValueError: 3", "Traceback …"),
        UnknownStorageError("s4://", "it is none"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_can_be_pickled(error: CoreSDKError) -> None:
    """Each error can be pickled and keeps its data."""
    unpickled = pickle.loads(pickle.dumps(error))

    assert type(unpickled) is type(error)
    assert str(unpickled) == str(error)
    assert vars(unpickled) == vars(error)
    assert unpickled.args == error.args


def test_the_tree_in_the_docstring_has_every_error() -> None:
    """The tree in the docstring of `errors` has every error."""
    defined = {kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__}
    drawn = set(re.findall(r"^[ │├└─]*(\w+)", (errors.__doc__ or "").partition("\n\n")[2], re.MULTILINE))

    assert {kind.__name__ for kind in defined if issubclass(kind, Exception)} - drawn == set()
