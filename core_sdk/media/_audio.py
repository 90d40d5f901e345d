"""Audio."""

from __future__ import annotations

from typing import Any, Literal

from core_sdk._ground.records import Media
from core_sdk.errors import MediaError
from core_sdk.media._content import described, is_source, read_source


class Audio(Media):
    """An audio.

    It is made from a tensor or array (samples, or samples x channels, or channels x samples) with its sample rate, the
    path of a file, or the bytes of one. Values are floats from -1 to 1, or integers of 16 or 32 bits. Files of WAV,
    FLAC, Ogg and MP3 are kept as they are, and others that libsndfile reads become WAV.
    """

    def __init__(
        self,
        data: Any,
        sample_rate: int | None = None,
        *,
        caption: str = "",
        format: Literal["wav", "flac", "ogg", "mp3"] = "wav",
    ) -> None:
        """`sample_rate` is the number of samples per second, which a file knows itself.

        Raises `MediaError`, `MediaTooLargeError` or `MissingDependencyError`.
        """
        from core_sdk.media._sounds import encode_sound, read_sound

        if is_source(data):
            sound = read_sound(read_source("audio", data))
        elif sample_rate is None:
            raise MediaError("audio", "is made from samples, and needs their sample_rate")
        else:
            sound = encode_sound(data, sample_rate, format)
        file = described("audio", sound.media_type, sound.content, caption, duration_s=sound.duration_s)
        super().__init__(file, sound.content)
