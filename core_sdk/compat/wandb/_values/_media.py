"""Media by wandb's arguments."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from core_sdk import media
from core_sdk._ground.records import Media
from core_sdk.compat.wandb._missing import missing
from core_sdk.media._content import described

_FORMATS = {"jpg": "jpeg"}


class Image(media.Image):
    """A picture, from an array, a tensor, a PIL image, a figure of Matplotlib or a file."""

    def __init__(
        self,
        data_or_path: Any,
        mode: str | None = None,
        caption: str | None = None,
        grouping: int | None = None,
        classes: Any = None,
        boxes: Any = None,
        masks: Any = None,
        file_type: str | None = None,
        normalize: bool = True,
    ) -> None:
        """With `normalize`, values from 0 to 1, from -1 to 1, or from 0 to 255 are told apart by their extremes."""
        if boxes or masks:
            raise TypeError(f"{missing('wandb.Image(boxes=…, masks=…)')}: log a mask as an image of its own")
        data: Any = getattr(data_or_path, "gcf", lambda: data_or_path)()
        if hasattr(data, "savefig"):
            data = _drawn(data)
        elif hasattr(data, "min") and hasattr(data, "dtype"):
            data = _scaled(data.detach() if hasattr(data, "detach") else data, normalize)
        elif hasattr(data, "convert") and mode is not None:
            data = data.convert(mode)
        format: Any = _FORMATS.get(file_type or "png", file_type or "png")
        super().__init__(data, caption=caption or "", format=format)


def _drawn(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _scaled(data: Any, normalize: bool) -> Any:
    """Returns pixels from 0 to 1; the pictures of a batch stand below each other."""
    if data.ndim == 4:
        data = data.swapaxes(0, 1).reshape(data.shape[1], -1, data.shape[3]) if hasattr(data, "cpu") else data.squeeze()
    data = data * 1.0
    low, high = float(data.min()), float(data.max())
    if normalize and -1 <= low < 0 and high <= 1:
        return (data + 1) / 2
    is_scaled = normalize and low >= 0 and high <= 1
    return data if is_scaled else data.clip(0, 255) / 255


class Histogram(media.Histogram):
    """Counts of values in bins."""

    def __init__(self, sequence: Any = None, np_histogram: Any = None, num_bins: int = 64) -> None:
        """Takes the values, or what `numpy.histogram` has returned of them."""
        if np_histogram is None:
            super().__init__(sequence, num_bins=num_bins)
        else:
            counts, edges = np_histogram
            super().__init__(counts=counts, edges=edges)


class Html(Media):
    """A page of HTML, which the web page shows in a frame that reaches neither the page nor any network."""

    def __init__(self, data: Any, inject: bool = True, data_is_not_path: bool = False) -> None:
        """Takes HTML, an open file, or the path of a file that ends with ".html". `inject` changes nothing.

        Raises `MediaTooLargeError`.
        """
        is_path = isinstance(data, Path) or (isinstance(data, str) and data.endswith(".html") and Path(data).is_file())
        if is_path and not data_is_not_path:
            content = Path(data).read_bytes()
        else:
            content = (data.read() if hasattr(data, "read") else str(data)).encode()
        super().__init__(described("figure", "text/html", content, ""), content)


class Video(media.Video):
    """A video: frames x channels x height x width, or a file."""

    def __init__(
        self, data_or_path: Any, caption: str | None = None, fps: float | None = None, format: str | None = None
    ) -> None:
        """Frames are kept as MP4, whatever the `format`. A batch is taken side by side."""
        data = data_or_path
        if getattr(data, "ndim", 0) == 5:
            batch, frames, channels, height, width = data.shape
            rows = data.swapaxes(0, 1).swapaxes(1, 2).swapaxes(2, 3)
            data = rows.reshape(frames, channels, height, batch * width)
        channels_of: Any = "first" if getattr(data, "ndim", 0) == 4 else None
        super().__init__(data, fps=fps or 4, caption=caption or "", channels=channels_of)


class Audio(media.Audio):
    """A sound, from samples or a file."""

    def __init__(self, data_or_path: Any, sample_rate: int | None = None, caption: str | None = None) -> None:
        super().__init__(data_or_path, sample_rate, caption=caption or "")
