"""Decodes the media of TensorBoard's events, as `SummaryWriter`s write them: images, audio, histograms and texts.

An event comes from a file that any program may have written, so nothing is believed: what is no event, or has values
that make no sense, is a `ValueError` or is left out.
"""

from __future__ import annotations

import hashlib
import math
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event

from core_sdk._ground.records import EXTENSIONS, MediaFile

_MAX_BINS = 1024
_MAX_TAG_CHARS = 1024
_SUFFIX_OF_TEXTS = "/text_summary"
_IMAGES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
"""The types of images, by their first bytes."""


class ScriptMedium(NamedTuple):
    """A medium of an event file."""

    wall_time: float
    step: int
    name: str
    """The tag; in a directory below the first one, after the directory's path: "version_0/samples"."""
    file: MediaFile


def media_of_event(message: bytes) -> list[tuple[ScriptMedium, bytes]]:
    """Returns the media of an event, with their contents. Raises `ValueError` for what is no event."""
    try:
        event = Event.FromString(message)
    except DecodeError as error:
        raise ValueError("the message is no event") from error
    found = []
    for value in event.summary.value:
        if (medium := medium_of(value)) is not None:
            if not math.isfinite(event.wall_time):
                raise ValueError("the event has no time")
            file, content = medium
            found.append((ScriptMedium(event.wall_time, event.step, name_of_medium(value.tag, file), file), content))
    return found


def name_of_medium(tag: str, file: MediaFile) -> str:
    return (tag.removesuffix(_SUFFIX_OF_TEXTS) if file.kind == "text" else tag)[:_MAX_TAG_CHARS]


def medium_of(value: Any) -> tuple[MediaFile, bytes] | None:
    """Returns a value of a summary as a file; None for a scalar, and for what has no form as a file."""
    match value.WhichOneof("value"):
        case "image":
            image = value.image
            return _image(image.encoded_image_string, image.width or None, image.height or None)
        case "audio":
            return _audio(value.audio)
        case "histo":
            return _histogram(value.histo)
        case "tensor" if value.metadata.plugin_data.plugin_name == "text":
            text = b"\n\n".join(value.tensor.string_val).decode(errors="replace")
            return _file("text", "text/plain", text.encode())
        case "tensor" if value.metadata.plugin_data.plugin_name == "images":  # TensorFlow 2 writes both sizes before
            width, height, content = [*value.tensor.string_val, b"", b"", b""][:3]
            return _image(content, *(int(size) if size.isdigit() else None for size in (width, height)))
        case _:
            return None


def _image(content: bytes, width: int | None, height: int | None) -> tuple[MediaFile, bytes] | None:
    media_type = next((kind for magic, kind in _IMAGES.items() if content.startswith(magic)), None)
    if media_type is None:
        return None
    return _file("image", media_type, content, width=width, height=height)


def _audio(audio: Any) -> tuple[MediaFile, bytes] | None:
    media_type = audio.content_type or "audio/wav"
    if not media_type.startswith("audio/") or media_type not in EXTENSIONS:
        return None
    duration_s = audio.length_frames / audio.sample_rate if audio.sample_rate > 0 else None
    return _file("audio", media_type, audio.encoded_audio_string, duration_s=duration_s)


def _histogram(histogram: Any) -> tuple[MediaFile, bytes] | None:
    """Returns a histogram without the empty bins at its ends, of which TensorBoard's have hundreds."""
    limits, counts = list(histogram.bucket_limit), list(histogram.bucket)
    if len(limits) != len(counts) or not math.isfinite(sum(counts)):
        return None
    filled = [index for index, count in enumerate(counts) if count > 0]
    if not filled:
        return None
    first, last = filled[0], filled[-1]
    low, high = histogram.min, histogram.max
    edges = [limits[first - 1] if first else low, *limits[first : last + 1]]
    # No value is outside of the smallest and the largest one.
    edges[0] = max(edges[0], low) if low < edges[1] else edges[0]
    edges[-1] = min(edges[-1], high) if high > edges[-2] else edges[-1]
    if not all(map(math.isfinite, edges)) or any(not left < right for left, right in pairwise(edges)):
        return None
    counts = counts[first : last + 1]
    width = math.ceil(len(counts) / _MAX_BINS)
    value = {
        "counts": [sum(counts[start : start + width]) for start in range(0, len(counts), width)],
        "edges": [*edges[:-1:width], edges[-1]],
        "num_not_finite": 0,
    }
    return _file("histogram", "application/json", msgspec.json.encode(value))


def _file(kind: str, media_type: str, content: bytes, **shape: Any) -> tuple[MediaFile, bytes]:
    sha256 = hashlib.sha256(content).hexdigest()
    return MediaFile(kind=kind, sha256=sha256, size_bytes=len(content), media_type=media_type, **shape), content
