"""The XML API: uploads in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from buckets.strict_gcs._answers import NO_UPLOAD, XML_NO_BUCKET, Answer, Refused, in_xml, xml_error
from buckets.strict_gcs._store import PartedUpload, Store, Switches, crc32c_of, new_id

if TYPE_CHECKING:
    from buckets.strict_gcs._handler import Request

_MOST_PARTS = 10_000
_SMALLEST_PART_BYTES = 5 << 20


def answer(store: Store, switches: Switches, request: Request) -> Answer:
    bucket, *rest = request.path
    query = request.query
    store.objects(bucket, XML_NO_BUCKET)
    match request.method, rest:
        case "GET", [] if "uploads" in query:
            return _list(store, switches, bucket, query)
        case "POST", [key] if "uploads" in query:
            return _begin(store, bucket, key)
        case "PUT", [_] if "partNumber" in query:
            return _put_part(_upload(store, request), request)
        case "POST", [_] if "uploadId" in query:
            return _complete(store, _upload(store, request), request)
        case "DELETE", [_] if "uploadId" in query:
            _upload(store, request)
            del store.uploads[query["uploadId"]]
            return Answer(204)
    return xml_error(405, "MethodNotAllowed", "The specified method is not allowed against this resource.")


def _upload(store: Store, request: Request) -> PartedUpload:
    upload = store.uploads.get(request.query["uploadId"])
    if upload is None or [upload.bucket, upload.key] != request.path:
        raise Refused(NO_UPLOAD)
    return upload


def _begin(store: Store, bucket: str, key: str) -> Answer:
    upload_id = new_id()
    store.uploads[upload_id] = PartedUpload(bucket, key)
    return in_xml("InitiateMultipartUploadResult", ("Bucket", bucket), ("Key", key), ("UploadId", upload_id))


def _put_part(upload: PartedUpload, request: Request) -> Answer:
    number = int(request.query["partNumber"])
    if not 1 <= number <= _MOST_PARTS:
        return xml_error(400, "InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive.")
    crc32c = crc32c_of(request.body)
    if request.headers.get("x-goog-hash", f"crc32c={crc32c}") != f"crc32c={crc32c}":
        return xml_error(400, "BadDigest", "The CRC32C you specified did not match what we received.")
    etag = f'"{new_id()}"'
    upload.parts[number] = (etag, request.body)
    return Answer(200, {"ETag": etag, "x-goog-hash": f"crc32c={crc32c},md5=AAAAAAAAAAAAAAAAAAAAAA=="})


def _complete(store: Store, upload: PartedUpload, request: Request) -> Answer:
    told = [
        (int(part.findtext("{*}PartNumber", "0")), part.findtext("{*}ETag", ""))
        for part in ElementTree.fromstring(request.body).findall("{*}Part")
    ]
    numbers = [number for number, _ in told]
    if numbers != sorted(set(numbers)):
        return xml_error(400, "InvalidPartOrder", "The list of parts was not in ascending order.")
    if not told or any(upload.parts.get(number, ("", b""))[0] != etag for number, etag in told):
        return xml_error(400, "InvalidPart", "One or more of the specified parts could not be found.")
    contents = [upload.parts[number][1] for number in numbers]
    if any(len(content) < _SMALLEST_PART_BYTES for content in contents[:-1]):
        return xml_error(400, "EntityTooSmall", "Your proposed upload is smaller than the minimum object size.")
    stored = store.put(upload.bucket, upload.key, b"".join(contents))
    del store.uploads[request.query["uploadId"]]
    headers = {"x-goog-hash": f"crc32c={stored.crc32c}", "x-goog-generation": str(stored.generation)}
    return in_xml("CompleteMultipartUploadResult", ("Bucket", upload.bucket), ("Key", upload.key), headers=headers)


def _list(store: Store, switches: Switches, bucket: str, query: dict[str, str]) -> Answer:
    marker = (query.get("key-marker", ""), query.get("upload-id-marker", ""))
    found = sorted(
        (upload.key, upload_id)
        for upload_id, upload in store.uploads.items()
        if upload.bucket == bucket and upload.key.startswith(query.get("prefix", ""))
    )
    rest = [upload for upload in found if upload > marker]
    some = rest[: switches.page_size]
    children: list[tuple[str, object]] = [("IsTruncated", str(len(rest) > len(some)).lower())]
    if len(rest) > len(some):
        children += [("NextKeyMarker", some[-1][0]), ("NextUploadIdMarker", some[-1][1])]
    children += [("Upload", [("Key", key), ("UploadId", upload_id)]) for key, upload_id in some]
    return in_xml("ListMultipartUploadsResult", *children)
