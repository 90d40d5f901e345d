"""Frames, which FFmpeg writes as a video."""

from __future__ import annotations

import io
from fractions import Fraction
from typing import Any, NamedTuple

import numpy

from core_sdk.errors import MediaError, MissingDependencyError
from core_sdk.media._arrays import Channels, as_pixels

try:
    import av
except ImportError as error:
    raise MissingDependencyError("PyAV", "media", "core_sdk.media.Video") from error

_MAX_FPS = 1000


class EncodedFrames(NamedTuple):
    content: bytes
    width: int
    height: int
    duration_s: float


def encode_frames(data: Any, fps: float, channels: Channels | None) -> EncodedFrames:
    """Returns frames as MP4. The codec needs even sizes, so that an odd one is extended by its last row or column."""
    if not 0 < fps <= _MAX_FPS:
        raise MediaError("video", f"has {fps} frames per second; it must be more than 0, and at most {_MAX_FPS}")
    pixels = as_pixels("video", data, 4, channels)[..., :3]
    num_frames, height, width, num_channels = pixels.shape
    if num_channels == 1:
        pixels = numpy.repeat(pixels, 3, axis=-1)
    pixels = numpy.pad(pixels, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    file = io.BytesIO()
    try:
        with av.open(file, "w", format="mp4") as container:
            stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1000))
            stream.height, stream.width = pixels.shape[1:3]
            stream.pix_fmt = "yuv420p"
            for frame in pixels:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
            container.mux(stream.encode())
    except (av.FFmpegError, ValueError) as error:
        raise MediaError("video", f"cannot be written: {error}") from error
    return EncodedFrames(file.getvalue(), width, height, num_frames / fps)
