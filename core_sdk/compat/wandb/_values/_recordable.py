"""The values that scripts log, as Core SDK records them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core_sdk import media
from core_sdk._ground.records import Media, number_of
from core_sdk.compat.wandb._values._table import Table

_MAX_LISTED = 32
"""An array of more elements is kept as a histogram."""


def recordable(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields a value as it is recorded, with its name.

    An array becomes a list, or a histogram if it is long; a figure of Matplotlib or Plotly becomes a medium. The
    pictures in a table follow it, by the names of their columns.
    """
    if isinstance(value, Table):
        yield name, value.as_medium()
        yield from ((f"{name}.{column}", pictures) for column, pictures in value.media_by_column().items())
    elif isinstance(value, bool):
        yield name, int(value)
    elif is_medium(value) or isinstance(value, (int, float, str)) or number_of(value) is not None:
        yield name, value
    elif hasattr(value, "gcf"):
        yield name, media.Figure(value.gcf())
    elif hasattr(value, "savefig") or hasattr(value, "to_html"):
        yield name, media.Figure(value)
    elif hasattr(value, "tolist") and hasattr(value, "reshape"):
        flat = value.reshape(-1)
        yield name, value.tolist() if len(flat) <= _MAX_LISTED else media.Histogram(value)
    else:
        yield name, value


def is_medium(value: Any) -> bool:
    """Returns whether the value is a medium, or a list of media only."""
    if isinstance(value, (list, tuple)):
        return len(value) > 0 and all(map(is_medium, value))
    return isinstance(value, Media)
