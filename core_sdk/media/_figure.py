"""Figures of Matplotlib and Plotly."""

from __future__ import annotations

import io
from typing import Any, Literal

from core_sdk._ground.records import Media
from core_sdk.errors import MediaError
from core_sdk.media._content import described

_MEDIA_TYPES = {"png": "image/png", "svg": "image/svg+xml", "html": "text/html"}


class Figure(Media):
    """A figure of Matplotlib, as a picture, or of Plotly, as a picture or as HTML that can be moved and zoomed.

    HTML of Plotly holds the whole library, some 5 MB in each file. The web page shows it in a frame that reaches
    neither the page nor any network.
    """

    def __init__(
        self,
        figure: Any,
        *,
        format: Literal["png", "svg", "html"] | None = None,
        dpi: float | None = None,
        caption: str = "",
    ) -> None:
        """`format` is "png" by default for Matplotlib, and "html" for Plotly, whose pictures need its library Kaleido.

        `dpi` is the resolution of a picture of Matplotlib. Raises `MediaError` or `MediaTooLargeError`.
        """
        is_plotly = hasattr(figure, "to_html") and hasattr(figure, "to_image")
        if not is_plotly and not hasattr(figure, "savefig"):
            raise MediaError("figure", f"is made from a {type(figure).__name__}, none of Matplotlib or Plotly")
        format = format or ("html" if is_plotly else "png")
        if format not in _MEDIA_TYPES or (format == "html" and not is_plotly):
            raise MediaError("figure", f"cannot have the format {format!r}")
        content = _drawn_by_plotly(figure, format) if is_plotly else _drawn_by_matplotlib(figure, format, dpi)
        super().__init__(described("figure", _MEDIA_TYPES[format], content, caption), content)


def _drawn_by_plotly(figure: Any, format: str) -> bytes:
    if format == "html":
        # The whole library is included: the frame that shows the figure reaches no network.
        return str(figure.to_html(include_plotlyjs=True, full_html=True)).encode()
    try:
        return bytes(figure.to_image(format=format))
    except (ValueError, RuntimeError, ImportError) as error:
        raise MediaError("figure", f"cannot be drawn as {format}: {error}") from error


def _drawn_by_matplotlib(figure: Any, format: str, dpi: float | None) -> bytes:
    file = io.BytesIO()
    # Without the date, so that equal figures are stored once.
    metadata = {"Date": None} if format == "svg" else None
    figure.savefig(file, format=format, dpi=dpi or "figure", bbox_inches="tight", metadata=metadata)
    return file.getvalue()
