"""Calls of Determined's client that have no meaning in a home, each with advice on what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from core_sdk.errors import NoMasterError


def unavailable(call: str, advice: str) -> Callable[..., NoReturn]:
    """Returns a function, or a method, that raises `NoMasterError` when it is called."""

    def refuse(*arguments: object, **keywords: object) -> NoReturn:
        raise NoMasterError(call, advice)

    return refuse


_NO_USERS = "There are no users: the home belongs to everybody who may write to its folder"
_NO_WORKSPACES = "There are no workspaces and projects: labels tell experiments apart"

FUNCTIONS = {
    **dict.fromkeys(
        ("create_user", "get_session_username", "get_user_by_id", "get_user_by_name", "list_users", "whoami"), _NO_USERS
    ),
    **dict.fromkeys(("create_workspace", "delete_workspace", "get_workspace", "list_workspaces"), _NO_WORKSPACES),
    **dict.fromkeys(("add_oauth_client", "list_oauth_clients", "remove_oauth_client"), _NO_USERS),
}
"""The advice on what to do instead, by the name of the function."""
