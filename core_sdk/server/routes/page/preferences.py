"""The preferences of the web page.

The home keeps them, not the browser: the page has another address after each start of the server.
"""

from __future__ import annotations

import threading
from typing import Annotated, Literal

import msgspec

from core_sdk.files import read_regular, write_atomically
from core_sdk.server.errors import RequestError
from core_sdk.server.records import Records
from core_sdk.server.route import Name
from core_sdk.server.routes.actions import Body, Done

_lock = threading.Lock()


class SavedView(msgspec.Struct, frozen=True):
    """A view of the table."""

    name: Name
    query: dict[str, str]
    """The settings in its address."""


class Preferences(msgspec.Struct, frozen=True):
    """The preferences that the page remembers."""

    theme: Literal["system", "light", "dark"] = "system"
    views: Annotated[list[SavedView], msgspec.Meta(max_length=1000)] = []


class PreferencesBody(Body, frozen=True):
    """Fields that are null are left unchanged."""

    theme: Literal["system", "light", "dark"] | None = None
    views: Annotated[list[SavedView], msgspec.Meta(max_length=1000)] | None = None


def preferences(records: Records) -> Preferences:
    """Returns the page's preferences; if their file cannot be read, the defaults."""
    try:
        return msgspec.json.decode(read_regular(records.tracker.home.page), type=Preferences)
    except (OSError, msgspec.MsgspecError):
        return Preferences()


def keep(records: Records, body: PreferencesBody) -> Done:
    """Remembers the theme or the saved views."""
    home = records.tracker.home
    if not home.root.exists():
        raise RequestError(409, "no_home", "there is no home yet that could remember it", "Its first trial makes it.")
    given = {name: value for name, value in msgspec.structs.asdict(body).items() if value is not None}
    with _lock:
        changed = msgspec.structs.replace(preferences(records), **given)
        write_atomically(home.page, msgspec.json.encode(changed))
    return Done("remembered")
