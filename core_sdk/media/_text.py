"""Texts."""

from __future__ import annotations

from core_sdk._ground.records import Media, check_text
from core_sdk.media._content import described


class Text(Media):
    """A text, such as what a language model has generated. The web page shows how it differs from step to step."""

    def __init__(self, text: str, *, caption: str = "") -> None:
        """Raises `MediaTooLargeError`."""
        content = check_text("the text", text).encode()
        super().__init__(described("text", "text/plain", content, caption), content)
