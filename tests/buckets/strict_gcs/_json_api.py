"""The JSON API: objects, lists, small uploads, downloads."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from buckets.strict_gcs._answers import Answer, Refused, in_json, json_error
from buckets.strict_gcs._store import Store, Switches

if TYPE_CHECKING:
    from buckets.strict_gcs._handler import Request

_NO_METHOD = json_error(405, "methodNotAllowed", "Method Not Allowed")


def answer(store: Store, switches: Switches, request: Request) -> Answer:
    match request.method, request.path[3:]:
        case "GET", []:
            return in_json({"kind": "storage#buckets"})
        case "POST", []:
            store.buckets.setdefault(str(request.json()["name"]), {})
            return in_json({"kind": "storage#bucket", **request.json()})
        case "GET", [bucket, "o"]:
            return _list(store, switches, bucket, request.query)
        case "GET", [bucket, "o", key]:
            return in_json(store.find(bucket, key, request.query).resource(bucket))
        case "DELETE", [bucket, "o", key]:
            store.find(bucket, key, request.query)
            del store.buckets[bucket][key]
            return Answer(204)
    return _NO_METHOD


def bytes_answer(store: Store, switches: Switches, request: Request) -> Answer:
    """Returns the answer to a request on the paths that carry the objects' bytes."""
    match request.method, request.path[4:], request.query.get("uploadType"):
        case "GET", [bucket, "o", key], None:
            return _media(store, bucket, key, request)
        case "POST", [bucket, "o"], "multipart":
            return _small(store, switches, bucket, request)
    return _NO_METHOD


def _list(store: Store, switches: Switches, bucket: str, query: dict[str, str]) -> Answer:
    prefix, delimiter, after = (query.get(name, "") for name in ("prefix", "delimiter", "pageToken"))
    entries: dict[str, bool] = {}
    """Name or prefix -> whether it is a prefix."""
    for key in store.objects(bucket):
        if key.startswith(prefix):
            head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key[len(prefix) :], "", "")
            entries[prefix + head + found] = bool(found)
    names = sorted(name for name in entries if name > after)
    size = min(switches.page_size, int(query.get("maxResults", 1000)))
    some = names[:size]
    listed = {
        "kind": "storage#objects",
        "items": [store.buckets[bucket][name].resource(bucket) for name in some if not entries[name]],
        "prefixes": [name for name in some if entries[name]],
    }
    return in_json(listed | ({"nextPageToken": some[-1]} if len(names) > size else {}))


def _media(store: Store, bucket: str, key: str, request: Request) -> Answer:
    try:
        stored = store.find(bucket, key, request.query)
    except Refused as refused:
        if refused.answer.status != 404 or bucket not in store.buckets:
            raise
        # Google says so here, and calls the text HTML.
        raise Refused(Answer(404, {"Content-Type": "text/html"}, f"No such object: {bucket}/{key}".encode())) from None
    wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
    headers = {"Content-Type": "application/octet-stream", "x-goog-hash": f"crc32c={stored.crc32c}"}
    size = len(stored.content)
    if wanted is None:
        return Answer(200, headers, stored.content)
    start, end = int(wanted.group(1)), min(int(wanted.group(2) or size), size - 1)
    if start >= size:
        return Answer(416, {"Content-Range": f"bytes */{size}"}, b"Requested range not satisfiable")
    headers["Content-Range"] = f"bytes {start}-{end}/{size}"
    return Answer(206, headers, stored.content[start : end + 1])


def _small(store: Store, switches: Switches, bucket: str, request: Request) -> Answer:
    (_, head), (_, content) = request.parts()
    metadata = json.loads(head)
    store.check_conditions(bucket, metadata["name"], request.query)
    told = metadata.get("crc32c")
    if switches.damage_next:
        switches.damage_next, told, content = False, None, bytes([content[0] ^ 1]) + content[1:]
    return in_json(store.put(bucket, metadata["name"], content, told).resource(bucket))
