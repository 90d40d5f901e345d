"""Videos."""

from __future__ import annotations

from typing import Any, Literal

from core_sdk._ground.records import Media
from core_sdk.errors import MediaError
from core_sdk.media._content import described, is_source, read_source

_TYPE_AT = {4: (b"ftyp", "video/mp4"), 0: (b"\x1a\x45\xdf\xa3", "video/webm")}


class Video(Media):
    """A video.

    It is made from a tensor or array (frames x height x width, with 1 or 3 channels first or last in each frame), the
    path of a file, or the bytes of one. Values are as in an `Image`. Frames are written as MP4 (H.264), and files of
    MP4, WebM and GIF are kept as they are.
    """

    def __init__(
        self,
        data: Any,
        *,
        fps: float = 8.0,
        caption: str = "",
        channels: Literal["first", "last"] | None = None,
    ) -> None:
        """`fps` is the number of frames per second, which a file knows itself.

        Raises `MediaError`, `MediaTooLargeError` or `MissingDependencyError`.
        """
        if is_source(data):
            content = read_source("video", data)
            super().__init__(described("video", _type_of(content), content, caption), content)
            return
        from core_sdk.media._frames import encode_frames

        encoded = encode_frames(data, fps, channels)
        file = described(
            "video",
            "video/mp4",
            encoded.content,
            caption,
            width=encoded.width,
            height=encoded.height,
            duration_s=encoded.duration_s,
        )
        super().__init__(file, encoded.content)


def _type_of(content: bytes) -> str:
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    for at, (mark, media_type) in _TYPE_AT.items():
        if content[at : at + len(mark)] == mark:
            return media_type
    raise MediaError("video", "is a file of an unknown type; it must be MP4, WebM or GIF")
