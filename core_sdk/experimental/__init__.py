"""`client` and `core_v2` at the paths that Determined gives them; names such as `experimental.Trial` are `client`'s."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core_sdk.experimental import client, core_v2

__all__ = ["client", "core_v2"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"core_sdk.experimental.{name}")
    from core_sdk import client  # loaded when one of its names is asked for, as the modules are

    if name in client.__all__:
        return getattr(client, name)
    raise AttributeError(f"module 'core_sdk.experimental' has no attribute {name!r}")
