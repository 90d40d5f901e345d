"""Values of wandb's records: names with their JSON, and media, which are files of the run's folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from math import inf, nan
from pathlib import Path
from typing import Any

import msgspec

from core_sdk._analysis.exchange.run import flat
from core_sdk._ground.environment import max_media_bytes
from core_sdk._ground.files import reading
from core_sdk._ground.records import EXTENSIONS, Media, MediaFile
from core_sdk.media import Table

_MEDIA_TYPES = {"jpeg": "image/jpeg", **{extension: kind for kind, extension in EXTENSIONS.items()}}
_KINDS = {"image-file": "image", "audio-file": "audio", "video-file": "video", "html-file": "figure"}
_NUMBERS = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}


def nested(items: Iterable[Any]) -> dict[str, Any]:
    """Returns the values of a message by their names; nested names give nested dicts. Raises `ValueError`."""
    values: dict[str, Any] = {}
    for item in items:
        path = item.nested_key or [item.key]
        value = _decoded(item.value_json)
        if len(path) == 1:
            values[path[0]] = value
            continue
        within = values
        for name in path[:-1]:
            if not isinstance(within.get(name), dict):
                within[name] = {}
            within = within[name]
        within[path[-1]] = value
    return values


def _decoded(text: str) -> Any:
    """Returns the value of a JSON text. Raises `ValueError`, also for one that is nested too deep."""
    if text == "-0":  # wandb writes so of -0.0
        return -0.0
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        value = json.loads(text)  # which knows NaN
    except RecursionError as error:
        raise ValueError("a value is nested too deep") from error
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


def with_media(values: dict[str, Any], files: Path, lose: Callable[[str], None]) -> dict[str, Any]:
    """Returns values by names with slashes, with media of the folder `files`. Calls `lose` for those left out."""
    found: dict[str, Any] = {}
    for name, value in flat(values):
        if not isinstance(value, dict):
            found[name] = value
            continue
        try:
            found[name] = _medium(value, files)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            lose(f"{value.get('_type')} {name!r} was left out: {reason}")
    return found


def _medium(value: dict[str, Any], files: Path) -> Media | list[Media]:
    kind, caption = value["_type"], str(value.get("caption") or "")
    if kind in _KINDS:
        return _of_file(_KINDS[kind], files, value["path"], caption, value)
    match kind:
        case "images/separated":
            captions = value.get("captions") or [""] * len(value["filenames"])
            return [
                _of_file("image", files, path, str(text or ""), value)
                for path, text in zip(value["filenames"], captions, strict=False)
            ]
        case "histogram":
            content = {"counts": value["values"], "edges": _edges(value), "num_not_finite": 0}
            return _media("histogram", "application/json", msgspec.json.encode(content))
        case "table-file":
            table = msgspec.json.decode(_read(files, value["path"]))
            return Table(table["data"], table["columns"])
    raise ValueError("media of this kind are not read")


def _edges(value: dict[str, Any]) -> list[float]:
    if (packed := value.get("packedBins")) is None:
        return list(value["bins"])
    return [packed["min"] + packed["size"] * index for index in range(packed["count"] + 1)]


def _of_file(kind: str, files: Path, path: str, caption: str, value: dict[str, Any]) -> Media:
    media_type = _MEDIA_TYPES.get(path.rpartition(".")[2].lower())
    if media_type is None:
        raise ValueError(f"files like {path} are not read")
    shape = {name: value[name] for name in ("width", "height") if isinstance(value.get(name), int)}
    return _media(kind, media_type, _read(files, path), caption=caption, **shape)


def _read(files: Path, path: str) -> bytes:
    file = (files / path).resolve()
    if not file.is_relative_to(files.resolve()):
        raise ValueError(f"{path} is outside of the run's folder")
    with reading(file) as opened:
        content = opened.read(max_media_bytes() + 1)
    if len(content) > max_media_bytes():
        raise ValueError(f"{path} is larger than a medium may be")
    return content


def _media(kind: str, media_type: str, content: bytes, **more: Any) -> Media:
    sha256 = hashlib.sha256(content).hexdigest()
    return Media(MediaFile(kind=kind, sha256=sha256, size_bytes=len(content), media_type=media_type, **more), content)
