"""The manifest of a checkpoint. It is written last, makes the checkpoint exist, and lists its files.

The file is JSON, `{"crc32c":"…","manifest":{…}}`, in exactly the bytes that `encode_manifest` writes. A manifest that
can be decoded but has other bytes is damaged.
"""

from __future__ import annotations

from typing import Any

import google_crc32c
import msgspec

from core_sdk._ground.decoding import json_decoder

MANIFEST_NAME = ".manifest.json"
"""The name of the manifest's file in the checkpoint's directory."""


class FileEntry(msgspec.Struct, kw_only=True, frozen=True):
    size_bytes: int
    crc32c: str
    """Eight lower-case hexadecimal digits."""


class Manifest(msgspec.Struct, kw_only=True, frozen=True):
    format: int = 1
    storage_id: str
    created: float
    files: dict[str, FileEntry]
    """Path relative to the checkpoint, with "/", in sorted order."""
    directories: list[str] = []
    """The paths of all directories, so that empty ones survive; each ends with "/"."""
    metadata: dict[str, Any] = {}
    ranks: tuple[int, ...] = (0,)
    """The ranks that wrote files."""
    removed: list[str] = []
    """Names that were deleted later. After a crash some of these files may still be there."""
    links: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """The links to directories of the checkpoint, each with its target relative to its own directory; unset if none."""

    @property
    def links_by_name(self) -> dict[str, str]:
        return {} if isinstance(self.links, msgspec.UnsetType) else self.links

    @property
    def resources(self) -> dict[str, int]:
        """The sizes in bytes by name. Directories have the size 0."""
        sizes = {name: entry.size_bytes for name, entry in self.files.items()} | dict.fromkeys(self.directories, 0)
        return dict(sorted(sizes.items()))


class _File(msgspec.Struct, kw_only=True):
    crc32c: str
    manifest: msgspec.Raw


def encode_manifest(manifest: Manifest) -> bytes:
    body = msgspec.json.encode(manifest)
    return msgspec.json.encode(_File(crc32c=_crc32c(body), manifest=msgspec.Raw(body)))


def decode_manifest(content: bytes) -> Manifest:
    """Decodes a manifest. Raises `ValueError`, with the reason, for anything that `encode_manifest` did not write."""
    try:
        file = json_decoder(_File)(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"is not a manifest ({error})") from error
    body = bytes(file.manifest)
    if _crc32c(body) != file.crc32c or msgspec.json.encode(file) != content:
        raise ValueError("does not have the checksum that was written")
    return json_decoder(Manifest)(body)


def _crc32c(content: bytes) -> str:
    return f"{google_crc32c.value(content):08x}"
