"""Media: values of a report that are files next to the journal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from core_sdk._ground.decoding import convert

MEDIA_TAG = "$media"
MEDIA_DIRECTORY = "media"
"""The directory of the files, next to the journal."""

MEDIA_KINDS = ("image", "audio", "video", "histogram", "table", "text", "figure", "confusion_matrix")

EXTENSIONS = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/svg+xml": "svg",
    "audio/wav": "wav",
    "audio/flac": "flac",
    "audio/ogg": "ogg",
    "audio/mpeg": "mp3",
    "video/mp4": "mp4",
    "video/webm": "webm",
    "text/plain": "txt",
    "text/html": "html",
    "application/json": "json",
}
"""The types of content that media have, with the extensions of their files."""


class MediaFile(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A file of a report, as the report names it."""

    kind: str
    """A kind of `MEDIA_KINDS`, or another one of a later version."""
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    """The SHA-256 of the content, which names the file and is its checksum."""
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    media_type: str
    caption: str = ""
    width: int | None = None
    """Width and height of a picture or a video, in pixels."""
    height: int | None = None
    duration_s: float | None = None
    """The length of an audio or a video, where it is known."""
    problem: str = ""
    """The reason for which the content could not be kept; empty if it was."""

    @property
    def name(self) -> str:
        """The name of the file in the trial's directory of media."""
        return f"{self.sha256}.{EXTENSIONS.get(self.media_type, 'bin')}"


@dataclass(frozen=True, eq=False)
class Media:
    """A value of a report with its content. The base of the kinds of `core_sdk.media`."""

    file: MediaFile
    content: bytes


def media_to_json(file: MediaFile) -> dict[str, Any]:
    return {MEDIA_TAG: msgspec.to_builtins(file)}


def media_from_json(value: dict[str, Any]) -> MediaFile | None:
    """Returns the file that `media_to_json` has described; None for any other value."""
    if value.keys() != {MEDIA_TAG}:
        return None
    try:
        return convert(value[MEDIA_TAG], MediaFile)
    except msgspec.ValidationError:
        return None


def media_in(value: Any, name: str) -> Iterator[tuple[str, MediaFile]]:
    """Yields the files in a value of a report, with their names: "samples", "samples[0]", "samples.cat"."""
    if isinstance(value, MediaFile):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from media_in(item, f"{name}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from media_in(item, f"{name}[{index}]")
