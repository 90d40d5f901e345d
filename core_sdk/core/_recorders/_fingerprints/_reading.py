"""Reads the fingerprints of an attempt."""

from __future__ import annotations

from pathlib import Path

from core_sdk._ground.decoding import json_decoder
from core_sdk.core._recorders._fingerprints._recorder import Fingerprint


def path_of_rank(path: Path, rank: int) -> Path:
    """Returns the file for the fingerprints of a rank, beside that of the chief."""
    return path.with_name(f"{path.stem}.rank-{rank}{path.suffix}") if rank else path


def read_fingerprints(path: Path) -> tuple[Fingerprint, ...]:
    """Returns the fingerprints of all ranks, where `path` is the chief's file; rank by rank, in the order of time."""
    others = sorted(path.parent.glob(f"{path.stem}.rank-*{path.suffix}"))
    return tuple(each for file in (path, *others) if file.exists() for each in _read(file))


def _read(path: Path) -> list[Fingerprint]:
    # The last line of a training that was killed may be cut.
    return list(map(json_decoder(Fingerprint), path.read_bytes().split(b"\n")[:-1]))
