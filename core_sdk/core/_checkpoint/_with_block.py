"""What `store_path()` and `restore_path()` return: a context manager that says so where `with` was forgotten."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from types import TracebackType
from typing import NoReturn, TypeVar

T = TypeVar("T")

logger = logging.getLogger("core_sdk.core")


class WithBlock(AbstractContextManager[T]):
    """Opens something by `with`. Used as what it would give, it raises `TypeError`; if it is dropped, it warns."""

    _is_entered = False

    def __init__(self, opened: AbstractContextManager[T], meant: str) -> None:
        """`meant` is what the script has to write, such as "with ….restore_path(…) as path:"."""
        self._opened = opened
        self._meant = meant

    def __enter__(self) -> T:
        self._is_entered = True
        return self._opened.__enter__()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return self._opened.__exit__(exc_type, exc_val, exc_tb)

    def __iter__(self) -> NoReturn:
        self._is_entered = True  # it has been told
        raise TypeError(f"it does nothing without `with`: write `{self._meant}`")

    def __fspath__(self) -> NoReturn:
        self.__iter__()

    def __truediv__(self, _: object) -> NoReturn:
        self.__iter__()

    def __del__(self) -> None:
        if not self._is_entered:
            logger.warning("a call did nothing, for it stands without `with`: write `%s`", self._meant)
