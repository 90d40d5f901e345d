"""The workspaces that a user has logged in to, with their tokens: a file that only the user can read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from core_sdk._ground.alive import file_lock
from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.environment import WorkspaceSettings, logins_path
from core_sdk._ground.files import read_regular, write_atomically
from core_sdk.errors import RecordDamagedError, UnknownWorkspaceError


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace, and what this user shows there."""

    name: str
    """The name by which commands and `init(workspace=…)` mean it."""
    url: str
    token: str = ""
    takes_actions: bool = True
    """Whether people may pause, kill, resume and label trials of this user from there."""

    def __repr__(self) -> str:
        return f"Login({self.name!r}, {self.url!r})"


class _Logins(msgspec.Struct):
    format: int = 1
    workspaces: list[Login] = []


def read_logins(path: Path | None = None) -> list[Login]:
    """Returns the logins. Raises `RecordDamagedError`."""
    path = path or logins_path()
    try:
        return json_decoder(_Logins)(read_regular(path)).workspaces
    except FileNotFoundError:
        return []
    except msgspec.MsgspecError as error:
        raise RecordDamagedError(path, str(error)) from error


def log_in(login: Login, path: Path | None = None) -> None:
    """Keeps a login, in place of one of its name."""
    path = path or logins_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file_lock(path.with_suffix(".lock")):
        others = [each for each in read_logins(path) if each.name != login.name]
        # A file that is written so can be read by its owner only.
        write_atomically(path, msgspec.json.encode(_Logins(workspaces=[*others, login])))


def find_login(server: str, settings: WorkspaceSettings | None = None, path: Path | None = None) -> Login:
    """Returns what is known of a workspace, by its address or by the name of a login.

    Raises `UnknownWorkspaceError` for a name of none, and `RecordDamagedError`.
    """
    settings = settings or WorkspaceSettings.read()
    known = read_logins(path)
    is_url = "://" in server
    found = next((each for each in known if server.rstrip("/") in (each.name, each.url)), None)
    if found is None and not is_url:
        raise UnknownWorkspaceError(server, [each.name for each in known])
    login = found or Login(name=name_of(server), url=server.rstrip("/"))
    # The variable means the workspace of the other variable, and shows its token to no other one.
    if settings.token and settings.server.rstrip("/") in (server.rstrip("/"), login.name, login.url):
        return msgspec.structs.replace(login, token=settings.token)
    return login


def name_of(url: str, taken: Iterable[str] = ()) -> str:
    """Returns a name for the workspace at this address: the last part of its path. Pure."""
    parts = urlsplit(url)
    last = parts.path.rstrip("/").rpartition("/")[2] or parts.hostname or url
    return f"{last}@{parts.hostname}" if last in taken else last
