"""Pictures, which Pillow reads and writes."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

from core_sdk.errors import MediaError, MissingDependencyError
from core_sdk.media._arrays import Channels, as_pixels

try:
    import PIL.Image
except ImportError as error:
    raise MissingDependencyError("Pillow", "media", "core_sdk.media.Image") from error

_MEDIA_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")


class EncodedPicture(NamedTuple):
    content: bytes
    media_type: str
    width: int
    height: int


def encode_picture(data: Any, format: str, channels: Channels | None) -> EncodedPicture:
    """Returns a tensor, an array or a PIL image as a file."""
    if format.upper() not in ("PNG", "JPEG", "WEBP"):
        raise MediaError("image", f'has the format {format!r}; it must be "png", "jpeg" or "webp"')
    if isinstance(data, PIL.Image.Image):
        return _written(data, format)
    pixels = as_pixels("image", data, 3, channels)
    return _written(PIL.Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels), format)


def read_picture(content: bytes) -> EncodedPicture:
    """Returns a file that browsers show as it is, and another one as PNG."""
    try:
        with PIL.Image.open(io.BytesIO(content)) as image:
            if (media_type := _MEDIA_TYPES.get(image.format or "")) is not None:
                return EncodedPicture(content, media_type, image.width, image.height)
            return _written(image, "PNG")
    except (OSError, ValueError, SyntaxError, PIL.Image.DecompressionBombError) as error:
        raise MediaError("image", f"cannot be read: {error}") from error


def _written(image: PIL.Image.Image, format: str) -> EncodedPicture:
    if format.upper() == "JPEG" and image.mode not in ("L", "RGB"):
        image = image.convert("RGB")
    elif image.mode not in _MODES:
        image = image.convert("RGBA" if "A" in image.getbands() else "RGB")
    file = io.BytesIO()
    image.save(file, format.upper())
    return EncodedPicture(file.getvalue(), _MEDIA_TYPES[format.upper()], image.width, image.height)
