"""`core-sdk trial media`: lists or downloads the media of a trial."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import click

from core_sdk._ground.records import MEDIA_KINDS
from core_sdk._home import Home, open_view
from core_sdk._home.media import HomeMedia
from core_sdk._home.rows import MediaRow, source_named
from core_sdk._interfaces.cli._arguments import Rank, Superseded
from core_sdk._interfaces.cli._home import open_home
from core_sdk._interfaces.cli._ids import TrialId
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.render.form import AsCsv, AsJson, Fields, choose_form
from core_sdk._interfaces.render.output import Form, print_csv, print_fields_as_csv, print_list
from core_sdk._interfaces.render.tables import Column, print_table
from core_sdk._interfaces.render.text import format_size
from core_sdk._interfaces.signatures import Option
from core_sdk.errors import RecordDamagedError

_COLUMNS = ["trial_id", "attempt", "rank", "group", "name", "steps_completed", "time"]
_OF_FILE = ["kind", "sha256", "size_bytes", "media_type", "caption", "width", "height", "duration_s", "problem"]
# Names of metrics may hold any character; files get those that are harmless everywhere.
_UNSPEAKABLE = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_PART_LENGTH = 60


def media(
    trial_id: TrialId,
    group: Annotated[str | None, Option(help="Only this group.")] = None,
    kind: Annotated[str | None, Option(metavar="KIND", help=f"Only this kind: {', '.join(MEDIA_KINDS)}.")] = None,
    superseded: Superseded = False,
    rank: Rank = None,
    directory: Annotated[
        Path | None, Option("--download", metavar="DIR", help="Write the files into this directory.")
    ] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    fields: Fields = "",
) -> None:
    """List the images, audios and other media of a trial, or write their files into a directory.

    The names of the files say what they are: validation_samples_0_step100.png.
    """
    form = choose_form(as_json, as_csv, fields)
    if kind is not None and kind not in MEDIA_KINDS:
        raise click.BadParameter(f"{kind!r} is none of {', '.join(MEDIA_KINDS)}", param_hint="--kind")
    home = open_home()
    home.trial(trial_id)
    with open_view(home) as view:
        found = view.media(trial_id, rank=rank and source_named(rank), superseded=superseded)
    found = [row for row in found if group in (None, row.group) and kind in (None, row.file.kind)]
    if directory is None:
        _print_media(found, form)
    elif not form.is_table:
        raise click.BadParameter("--download writes files: leave out --json and --csv")
    else:
        _download_media(home, found, directory)


def _print_media(found: Sequence[MediaRow], form: Form) -> None:
    if form.is_json:
        print_list(map(_fields, found), form.fields)
    elif form.fields:
        print_fields_as_csv(map(_fields, found), form.fields)
    elif form.is_csv:
        print_csv([[*_COLUMNS, *_OF_FILE, "is_superseded"], *(list(_fields(row).values()) for row in found)])
    elif not found:
        click.echo("No media yet.")
    else:
        print_table(_columns(found), found)
        files = {row.file.name: row.file.size_bytes for row in found}
        click.echo(f" {len(found)} media in {len(files)} files, {format_size(sum(files.values()))}")


def _download_media(home: Home, found: Sequence[MediaRow], directory: Path) -> None:
    """Writes the files under names that say what they are. Names the damaged ones, and fails at the end if any is."""
    directory.mkdir(parents=True, exist_ok=True)
    used: set[str] = set()
    problems = []
    for row in found:
        name = _speaking_name(row, used)
        used.add(name)
        if row.file.problem:
            problems.append(f"{row.group} {row.name} at {row.steps_completed} was not kept: {row.file.problem}")
            continue
        try:
            directory.joinpath(name).write_bytes(HomeMedia(home).read(row.trial_id, row.file.name))
        except RecordDamagedError as error:
            problems.append(str(error))
        else:
            click.echo(directory / name)
    for problem in problems:
        say(problem)
    if problems:
        raise click.exceptions.Exit(1)


def _speaking_name(row: MediaRow, used: set[str]) -> str:
    """Returns a name such as "validation_samples_0_step100.png" that was not used before."""
    group, metric = (
        _UNSPEAKABLE.sub("_", part).strip("_.")[:_MAX_PART_LENGTH] or "_" for part in (row.group, row.name)
    )
    stem = f"{group}_{metric}_step{row.steps_completed}"
    if row.is_superseded:
        stem += f"_attempt{row.attempt}"
    if row.rank:
        stem += f"_rank{row.rank}"
    extension = row.file.name.partition(".")[2]
    name, number = f"{stem}.{extension}", 2
    while name in used:
        name, number = f"{stem}_{number}.{extension}", number + 1
    return name


def _columns(found: Sequence[MediaRow]) -> list[Column[MediaRow]]:
    rank = Column[MediaRow]("Rank", lambda row: row.rank, is_number=True)
    return [
        Column("Name", lambda row: row.name, can_be_cut=True),
        Column("Group", lambda row: row.group, can_be_cut=True),
        Column("Steps", lambda row: row.steps_completed, is_number=True),
        Column("Kind", lambda row: row.file.kind),
        Column("Size", lambda row: format_size(row.file.size_bytes), is_number=True),
        Column("Problem", lambda row: row.file.problem, can_be_cut=True),
        Column("Caption", lambda row: row.file.caption, can_be_cut=True),
        Column("Attempt", lambda row: f"{row.attempt}{' (superseded)' if row.is_superseded else ''}", True),
        *([rank] if any(row.rank for row in found) else []),
    ]


def _fields(row: MediaRow) -> dict[str, object]:
    of_file = {name: getattr(row.file, name) for name in _OF_FILE}
    return {name: getattr(row, name) for name in _COLUMNS} | of_file | {"is_superseded": row.is_superseded}
