"""The JSON files of the model registry."""

from __future__ import annotations

from typing import Any

import msgspec

from core_sdk._ground.records._values import Int64, Time


class ModelVersionRecord(msgspec.Struct, kw_only=True):
    """A checkpoint that is registered as a version of a model."""

    version: Int64
    """The number, counted from 1. The number of a deleted version is not used again."""
    checkpoint: str
    created: Time
    name: str = ""
    notes: str = ""
    metadata: dict[str, Any] = {}


class ModelRecord(msgspec.Struct, kw_only=True):
    """`<home>/models/<id>/model.json`."""

    format: int = 1
    model_id: Int64
    name: str
    created: Time
    updated: Time
    description: str = ""
    metadata: dict[str, Any] = {}
    labels: list[str] = []
    is_archived: bool = False
    last_version: Int64 = 0
    """The highest number that a version ever had."""
    versions: list[ModelVersionRecord] = []
    """The versions in the order of their numbers."""
