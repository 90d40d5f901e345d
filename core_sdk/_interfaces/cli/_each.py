"""Commands that do something to each of several trials or experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click

from core_sdk._interfaces.cli._failures import ExitCode, exit_status_of
from core_sdk._interfaces.render.output import print_list
from core_sdk.errors import CoreSDKError


def for_each(
    noun: str,
    ids: Iterable[int],
    do: Callable[[int], str | None],
    as_json: bool,
    *,
    done: str = "",
    only_ids: bool = False,
) -> None:
    """Does the action for all of them, even if some fail; the exit status is the last failure's.

    The new state of each, which `do` returns if it is not always `done`, is printed unless `only_ids` are wanted.
    """
    states: dict[int, str] = {}
    status = ExitCode.OK
    for one in dict.fromkeys(ids):
        try:
            states[one] = do(one) or done
        except CoreSDKError as error:
            status = ExitCode(exit_status_of(error))
            continue
        if not as_json:
            click.echo(one if only_ids else f"{noun} {one}: {states[one]}")
    if as_json:
        print_list({f"{noun}_id": one, "state": state} for one, state in states.items())
    if status is not ExitCode.OK:
        raise click.exceptions.Exit(status)
