"""Commands that do something to each of several trials or experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import typer

from core_sdk.cli._failures import ExitCode, exit_status_of
from core_sdk.cli.render.json import print_list
from core_sdk.errors import CoreSDKError


def for_each(noun: str, ids: Iterable[int], do: Callable[[int], str], as_json: bool, *, only_ids: bool = False) -> None:
    """Does the action for all of them, even if some fail; the exit status is that of the last failure.

    `do` returns the new state of each, which is printed, unless `only_ids` are wanted.
    """
    done: list[dict[str, Any]] = []
    status = ExitCode.OK
    for one in dict.fromkeys(ids):
        try:
            done.append({f"{noun}_id": one, "state": do(one)})
        except CoreSDKError as error:
            status = ExitCode(exit_status_of(error))
            continue
        if not as_json:
            typer.echo(one if only_ids else f"{noun} {one}: {done[-1]['state']}")
    if as_json:
        print_list(done)
    if status is not ExitCode.OK:
        raise typer.Exit(status)
