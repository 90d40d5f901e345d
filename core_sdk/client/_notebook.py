"""Shows a trial, an experiment or a checkpoint in a notebook: its facts, and below them its curves."""

from __future__ import annotations

import html
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from core_sdk.client._home_object import HomeObject
from core_sdk.errors import CoreSDKError

if TYPE_CHECKING:
    from core_sdk._analysis.charts.picture import Picture

_Row = TypeVar("_Row")

_REFRESH_S = 2.0


class Shown(HomeObject[_Row]):
    """Shows itself in a notebook. What a cell shows of something that is going on follows it to its end."""

    @abstractmethod
    def _facts(self) -> Mapping[str, object]:
        """Returns what the table shows. Values that are None are left out."""

    def _picture(self) -> Picture | None:
        """Returns the curves, if there may be any."""
        return None

    def _is_going_on(self) -> bool:
        """Returns whether it may still change."""
        return False

    def _newest(self) -> Self:
        """Returns the same thing as it is now."""
        return type(self)(self._home, self._read())

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
            for name, value in self._facts().items()
            if value is not None
        )
        picture = self._picture()
        return f"<table>{rows}</table>" + ("" if picture is None else picture._repr_html_())

    def _ipython_display_(self) -> None:
        display: Any = sys.modules["IPython.display"]  # IPython calls this
        handle = display.display(display.HTML(self._repr_html_()), display_id=True)
        if handle is not None and self._is_going_on():
            # A notebook's main thread must be free for the next cell.
            follow = threading.Thread(target=_follow, args=(self, handle, display.HTML), daemon=True)
            follow.start()


def _follow(shown: Shown[Any], handle: Any, as_html: Any) -> None:
    """Refreshes what a cell shows until it no longer changes, or cannot be read."""
    last = ""
    while shown._is_going_on():
        time.sleep(_REFRESH_S)
        try:
            shown = shown._newest()
            text = shown._repr_html_()
        except CoreSDKError:
            return  # it was deleted, for example; the cell keeps what it shows
        if text != last:
            handle.update(as_html(text))
            last = text
