"""Images."""

from __future__ import annotations

from typing import Any, Literal

from core_sdk._ground.records import Media
from core_sdk.media._content import described, is_source, read_source

_SVG_BEGINNINGS = (b"<svg", b"<?xml", b"<!DOCTYPE svg")


class Image(Media):
    """An image.

    It is made from a tensor or array (height x width, with 1, 3 or 4 channels first or last), a PIL image, the path of
    a file, or the bytes of one. Values are floats from 0 to 1, integers from 0 to 255, or bools. A float beyond is cut
    off, and NaN is black. Files of PNG, JPEG, GIF, WebP and SVG are kept as they are, and others become PNG.
    """

    def __init__(
        self,
        data: Any,
        *,
        caption: str = "",
        format: Literal["png", "jpeg", "webp"] = "png",
        channels: Literal["first", "last"] | None = None,
    ) -> None:
        """`channels` says where the channels are if the shape leaves it open; then tensors have them first.

        Raises `MediaError`, `MediaTooLargeError` or `MissingDependencyError`.
        """
        content = read_source("image", data) if is_source(data) else None
        if content is not None and content.lstrip()[:64].startswith(_SVG_BEGINNINGS):
            super().__init__(described("image", "image/svg+xml", content, caption), content)
            return
        from core_sdk.media._pictures import encode_picture, read_picture

        encoded = encode_picture(data, format, channels) if content is None else read_picture(content)
        file = described(
            "image", encoded.media_type, encoded.content, caption, width=encoded.width, height=encoded.height
        )
        super().__init__(file, encoded.content)
