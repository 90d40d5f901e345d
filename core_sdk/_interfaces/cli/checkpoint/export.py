"""`core-sdk checkpoint export`: a checkpoint's tensors as safetensors files."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import click

from core_sdk._interfaces.cli._ids import StorageId
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.signatures import Option

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


class _Dtype(StrEnum):
    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"


def _size_bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([KMGT]B|)", text.strip().upper())
    if match is None or not (size := int(float(match[1]) * _UNITS[match[2]])):
        raise click.BadParameter(f"{text!r} is no size such as 5GB or 500MB")
    return size


def export(
    storage_id: StorageId,
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="DIR", help="A new directory for the files.", show_default="exports/ID"),
    ] = None,
    part: Annotated[
        str, Option(metavar="NAME", help='Only the tensors below NAME, such as "model", by their names there.')
    ] = "",
    file: Annotated[str | None, Option(metavar="FILE", help="The checkpoint's file, if several hold tensors.")] = None,
    dtype: Annotated[_Dtype | None, Option(help="Convert floating-point numbers.", show_default="as stored")] = None,
    shards: Annotated[
        int | None,
        Option(parser=_size_bytes, metavar="SIZE", help="Several files of at most SIZE each, such as 5GB."),
    ] = None,
    index: Annotated[bool, Option("--index", help="Write an index also for a single file.")] = False,
    tensors_only: Annotated[bool, Option("--tensors-only", help="Leave out values that are no tensors.")] = False,
) -> None:
    """Write a checkpoint's tensors as safetensors files, with the names that transformers reads.

    Reads what loop.State, a Trainer, torch.save(), torch.distributed.checkpoint and safetensors have stored, without
    running code of it. The directory appears when all is written; it must not exist. Of tensors that share their memory
    the first is written, and the others are named.
    """
    from core_sdk._interfaces.cli._home import open_home
    from core_sdk._interfaces.cli.checkpoint.selection import checkpoint_row
    from core_sdk.client import Checkpoint  # slow to import

    exported = Checkpoint(open_home(), checkpoint_row(storage_id)).export(
        output,
        file=file,
        part=part,
        dtype=None if dtype is None else dtype.value,
        max_shard_bytes=shards,
        index=index,
        tensors_only=tensors_only,
    )
    for name, kept in exported.tied.items():
        say(f"{name} is {kept}: it is written once")
    if exported.left_out:
        say(f"left out, since they are no tensors: {', '.join(exported.left_out)}")
    click.echo(exported.path)
