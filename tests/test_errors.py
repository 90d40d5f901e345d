"""Errors, as values."""

from __future__ import annotations

import importlib.metadata
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

ROOT = Path(__file__).resolve().parent.parent


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


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    """The docstring of `errors` draws its classes, in their order, below their parents."""
    told = (errors.__doc__ or "").partition("\n\n")[2].partition("\n\n")[0].splitlines()

    assert [re.match(r"[ │├└─]*\w+(?: \(\w+\))?", line)[0].removeprefix("    ") for line in told] == drawn()  # type: ignore[index]


def test_a_missing_library_is_installed_by_its_own_name() -> None:
    """The message names what the extra brings, as the installed metadata lists it."""
    extras = importlib.metadata.metadata("core-sdk").get_all("Provides-Extra") or []

    assert extras
    assert str(MissingDependencyError("boto3", "s3", "S3")) == 'S3 needs boto3: pip install "boto3>=1.36"'
    for extra in extras:
        assert re.search(
            r'pip install "(?!core-sdk)\w', str(MissingDependencyError("a library", extra, "a purpose"))
        ), extra


def test_nothing_is_installed_from_the_index_by_our_name() -> None:
    """No page and no message installs `core-sdk` from PyPI, where nobody owns that name before the first release."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.*")]
    sources = [*(ROOT / "core_sdk").rglob("*.py"), *(ROOT / "launchers").rglob("*.py")]

    installing = re.compile(r'pip install (-\S+ )*"?core-sdk(?!\S* @ )')
    assert [path.name for path in [*pages, *sources] if installing.search(path.read_text(errors="replace"))] == []


def drawn() -> list[str]:
    """Draws the tree of the errors. A name in brackets is an exception of Python's that the error is, too."""
    own = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and kind.__module__ == errors.__name__ and issubclass(kind, Exception)
    ]
    roots = [kind for kind in dict.fromkeys(own) if not any(base in own for base in kind.__bases__)]
    return [line for kind in roots for line in (_label(kind, is_root=True), *_below(kind))]


def _below(kind: type[Exception]) -> list[str]:
    children = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    lines = []
    for child in children:
        branch, trunk = ("└── ", "    ") if child is children[-1] else ("├── ", "│   ")
        lines += [branch + _label(child), *(trunk + line for line in _below(child))]
    return lines


def _label(kind: type[Exception], *, is_root: bool = False) -> str:
    foreign = [base.__name__ for base in kind.__bases__ if base.__module__ == "builtins"]
    is_plain = kind is errors.CoreSDKError or (not is_root and not foreign)
    return kind.__name__ if is_plain else f"{kind.__name__} ({foreign[0]})"
