"""The preferences of the web page.

The home keeps them, not the browser: the page has another address after each start of the server.
"""

from __future__ import annotations

import threading
from typing import Literal

import msgspec

from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.files import read_regular, write_atomically
from core_sdk._interfaces.server.errors import RequestError
from core_sdk._interfaces.server.route import Name
from core_sdk._interfaces.server.routes.actions import Body, Done
from core_sdk._interfaces.server.shared_view import SharedView
from core_sdk._workspace.actions.asker import present_asker

_MAX_VIEWS = 1000

_lock = threading.Lock()


class SavedView(msgspec.Struct, frozen=True):
    """A view of the table."""

    name: Name
    query: dict[str, str]
    """The settings in its address."""
    author: str = ""
    """Who has saved it; the server says so, whatever is sent."""


class Preferences(msgspec.Struct, frozen=True):
    """The preferences that the page remembers."""

    theme: Literal["system", "light", "dark"] = "system"
    views: list[SavedView] = []


class PreferencesBody(Body, frozen=True):
    """Fields that are null are left unchanged."""

    theme: Literal["system", "light", "dark"] | None = None
    save_view: SavedView | None = None
    """A view that is added, or that replaces the one of its name. All others stay."""
    forget_view: Name | None = None


def preferences(shared: SharedView) -> Preferences:
    """Returns the page's preferences; if their file cannot be read, the defaults."""
    try:
        return json_decoder(Preferences)(read_regular(shared.home.page))
    except (OSError, msgspec.MsgspecError):
        return Preferences()


def keep(shared: SharedView, body: PreferencesBody) -> Done:
    """Remembers the theme or a view, or forgets a view."""
    home = shared.home
    if not home.root.exists():
        raise RequestError(409, "no_home", "there is no home yet that could remember it", "Its first trial makes it.")
    with _lock:
        kept = preferences(shared)
        gone = {body.forget_view, body.save_view.name if body.save_view else None}
        views = [view for view in kept.views if view.name not in gone]
        if body.save_view:
            views.append(msgspec.structs.replace(body.save_view, author=present_asker().name))
        if len(views) > _MAX_VIEWS:
            raise RequestError(409, "too_many_views", f"the home remembers {_MAX_VIEWS} views", "Forget one first.")
        write_atomically(home.page, msgspec.json.encode(Preferences(body.theme or kept.theme, views)))
    return Done("remembered")
