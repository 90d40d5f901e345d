"""Sounds, which libsndfile reads and writes."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy

from core_sdk.errors import MediaError, MissingDependencyError
from core_sdk.media._arrays import as_array

try:
    import soundfile
except (ImportError, OSError) as error:  # an OSError where libsndfile is missing
    raise MissingDependencyError("soundfile", "media", "core_sdk.media.Audio") from error

_MEDIA_TYPES = {"WAV": "audio/wav", "FLAC": "audio/flac", "OGG": "audio/ogg", "MP3": "audio/mpeg"}


class Sound(NamedTuple):
    content: bytes
    media_type: str
    duration_s: float


def encode_sound(data: Any, sample_rate: int, format: str) -> Sound:
    """Returns samples as a file."""
    if format.upper() not in _MEDIA_TYPES:
        raise MediaError("audio", f'has the format {format!r}; it must be "wav", "flac", "ogg" or "mp3"')
    samples = as_array("audio", data)
    if samples.ndim == 2 and samples.shape[0] < samples.shape[1]:
        samples = samples.T
    if samples.ndim not in (1, 2) or samples.size == 0:
        raise MediaError("audio", f"is made from an array of shape {samples.shape}; it must be samples x channels")
    if samples.dtype.kind == "f":
        samples = numpy.nan_to_num(numpy.clip(samples, -1.0, 1.0)).astype(numpy.float32)
    elif samples.dtype not in (numpy.int16, numpy.int32):
        raise MediaError("audio", f"has samples of {samples.dtype}; they must be floats, or integers of 16 or 32 bits")
    return _written(samples, sample_rate, format)


def read_sound(content: bytes) -> Sound:
    """Returns a file that browsers play as it is, and another one as WAV."""
    try:
        info = soundfile.info(io.BytesIO(content))
        if (media_type := _MEDIA_TYPES.get(info.format)) is not None:
            return Sound(content, media_type, info.duration)
        samples, sample_rate = soundfile.read(io.BytesIO(content))
    except soundfile.LibsndfileError as error:
        raise MediaError("audio", f"cannot be read: {error}") from error
    return _written(samples, sample_rate, "wav")


def _written(samples: Any, sample_rate: int, format: str) -> Sound:
    file = io.BytesIO()
    try:
        soundfile.write(file, samples, sample_rate, format=format.upper())
    except (soundfile.LibsndfileError, ValueError, TypeError) as error:
        raise MediaError("audio", f"cannot be written as {format}: {error}") from error
    return Sound(file.getvalue(), _MEDIA_TYPES[format.upper()], len(samples) / sample_rate)
