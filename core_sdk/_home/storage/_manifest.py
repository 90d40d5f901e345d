"""The contents of metadata.json and of the manifest."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import google_crc32c
import msgspec

from core_sdk._ground.records import FileEntry, Manifest, to_json
from core_sdk._home.storage._names import METADATA_NAME, linked_directory, matching
from core_sdk._home.storage._storage import Selector

if TYPE_CHECKING:
    from core_sdk._home.storage._shard import ShardUnion


def completed(storage_id: str, union: ShardUnion, metadata: Mapping[str, Any]) -> tuple[Manifest, bytes]:
    """Returns the manifest of a checkpoint that is complete now, and the content of metadata.json, for people.

    Raises `TypeError` for metadata that JSON cannot hold.
    """
    stored_metadata = to_json(metadata, "metadata")
    content = msgspec.json.format(msgspec.json.encode(stored_metadata))
    entry = FileEntry(size_bytes=len(content), crc32c=f"{google_crc32c.value(content):08x}")
    files = {**union.files, METADATA_NAME: entry}
    manifest = Manifest(
        storage_id=storage_id,
        created=time.time(),
        files=dict(sorted(files.items())),
        directories=union.directories,
        metadata=stored_metadata,
        ranks=union.ranks,
        links=union.links or msgspec.UNSET,
    )
    return manifest, content


def selected(names: Iterable[str], selector: Selector | None) -> list[str]:
    """Returns the names that `selector` accepts, and always metadata.json."""
    return [name for name in names if selector is None or name == METADATA_NAME or selector(name)]


def without(manifest: Manifest, globs: Sequence[str]) -> Manifest | None:
    """Returns the manifest without what `globs` match, or None if none of the script's files remain."""
    links = manifest.links_by_name
    removed = matching([*manifest.resources, *links], globs) - {METADATA_NAME}
    # A link goes with the directory to which it leads.
    removed |= {name for name, target in links.items() if f"{linked_directory(name, target)}/" in removed}
    if manifest.resources.keys() - removed <= {METADATA_NAME}:
        return None
    return msgspec.structs.replace(
        manifest,
        files={name: entry for name, entry in manifest.files.items() if name not in removed},
        directories=[name for name in manifest.directories if name not in removed],
        removed=sorted({*manifest.removed, *removed}),
        links={name: target for name, target in links.items() if name not in removed} or msgspec.UNSET,
    )
