"""Long lists in pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

import msgspec

Cursor = Annotated[int, msgspec.Meta(ge=0)]
"""Where a page begins: 0, or `next` of the page before."""

_T = TypeVar("_T")


def page_of(found: Sequence[_T], cursor: int, limit: int) -> tuple[list[_T], int | None]:
    """Returns at most `limit` of the items found, and the cursor of the next page, which is None on the last page."""
    end = cursor + limit
    return list(found[cursor:end]), end if end < len(found) else None
