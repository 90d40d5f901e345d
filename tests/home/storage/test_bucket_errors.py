"""What is wrong with a bucket, or in it, is told by an error of its own class, and no secret is told with it."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from buckets import faults, work
from buckets.opening import bucket_at
from buckets.proxy import Fault
from buckets.servers import BucketServer
from buckets.stand import CLOCK, Stand, start_stand
from buckets.work import Scene
from parts import needs
from promises import promise
from saving import checkpoint_ids
from stage import told_of

from core_sdk._ground.records import FileEntry, Manifest, encode_manifest
from core_sdk._home import Home
from core_sdk._home.storage import Storage, storage_from_url
from core_sdk._home.storage.bucket._bucket import Bucket
from core_sdk._home.storage.bucket._limits import Limits
from core_sdk._home.storage.bucket._storage import BucketStorage
from core_sdk.errors import (
    BucketNotFoundError,
    CheckpointDamagedError,
    CheckpointNotFoundError,
    CoreSDKError,
    CredentialsMissingError,
    CredentialsRejectedError,
    NotEnoughSpaceError,
    StorageError,
    StoragePermissionError,
    UnsafePathError,
)

ONE_PER_STORE = ["strict GCS", "moto", "Azurite"]
LIMITS = Limits(deadline_s=5.0, num_threads=4, whole_bytes=64 << 10, range_bytes=80_000)
ID = "11111111-2222-3333-4444-555555555555"

GCS_REFUSAL = b'{"error": {"code": %d, "message": "%s", "errors": [{"reason": "%s"}]}}'
S3_REFUSAL = b"<?xml version='1.0'?><Error><Code>%s</Code><Message>%s</Message></Error>"
XML = {"Content-Type": "application/xml"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(params=ONE_PER_STORE)
def stand(
    request: pytest.FixtureRequest,
    start_server: Callable[[str], BucketServer],
    open_bucket: Callable[[str], Bucket],
    tmp_path: Path,
) -> Iterator[Stand]:
    with start_stand(start_server(request.param), open_bucket, tmp_path, LIMITS) as stand:
        yield stand


@pytest.fixture
def gcs(
    start_server: Callable[[str], BucketServer], open_bucket: Callable[[str], Bucket], tmp_path: Path
) -> Iterator[Stand]:
    with start_stand(start_server("strict GCS"), open_bucket, tmp_path, LIMITS) as stand:
        yield stand


def calls_on(storage: Storage, scene: Scene) -> dict[str, Callable[[], object]]:
    """Returns all calls that send requests to the store."""
    return {
        "check_writable": storage.check_writable,
        "save": lambda: work.save(storage, scene),
        "manifest": lambda: storage.manifest(scene.storage_id),
        "download": lambda: storage.download(scene.storage_id, scene.directory),
        "delete": lambda: storage.delete(scene.storage_id),
    }


def error_of(call: Callable[[], object]) -> CoreSDKError:
    with pytest.raises(CoreSDKError) as raised:
        call()
    return raised.value


@pytest.mark.parametrize("server_name", ONE_PER_STORE)
def test_a_wrong_bucket_is_told_at_once(
    start_server: Callable[[str], BucketServer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server_name: str
) -> None:
    """A missing bucket is named by every call at once, without retries."""
    server = start_server(server_name)
    for name, value in server.variables().items():
        monkeypatch.setenv(name, value)
    url = server.make_bucket().replace("://", "://missing-")
    storage = BucketStorage(bucket_at(url), temp_dir=tmp_path)
    began = time.monotonic()

    errors = {name: error_of(call) for name, call in calls_on(storage, Scene.new(tmp_path)).items()}
    storage.close()

    assert {name: type(error) for name, error in errors.items()} == dict.fromkeys(errors, BucketNotFoundError)
    assert all(url.partition("?")[0].split("/")[2] in str(error) for error in errors.values())
    assert time.monotonic() - began < LIMITS.deadline_s


@pytest.mark.parametrize("url", ["gs://bucket/prefix", "s3://bucket/prefix", "azure://container/prefix"])
def test_missing_credentials_are_told_with_where_to_put_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str
) -> None:
    """Missing credentials raise an error that says where to put them."""
    forget_credentials(monkeypatch, tmp_path)

    with pytest.raises(CredentialsMissingError, match=url) as raised:
        storage_from_url(url).check_writable()

    assert any(word in str(raised.value) for word in ("gcloud auth", "AWS_ACCESS_KEY_ID", "AZURE_STORAGE"))


def forget_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Removes all credentials of the user and the machine from the environment."""
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "AWS_PROFILE", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    for name in ("CONNECTION_STRING", "ACCOUNT", "KEY", "SAS_TOKEN"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("CLOUDSDK_CONFIG", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "nobody"))


# With an emulator there are no credentials that could be rejected.
REFUSALS: dict[str, dict[type[StorageError], Fault]] = {
    "strict GCS": {
        CredentialsMissingError: faults.answer(
            "401 Unauthorized", JSON, GCS_REFUSAL % (401, b"Invalid Credentials", b"authError")
        ),
        StoragePermissionError: faults.answer(
            "403 Forbidden", JSON, GCS_REFUSAL % (403, b"nobody@example.com does not have access.", b"forbidden")
        ),
    },
    "moto": {
        CredentialsRejectedError: faults.answer("400 Bad Request", XML, S3_REFUSAL % (b"ExpiredToken", b"expired.")),
        StoragePermissionError: faults.answer("403 Forbidden", XML, S3_REFUSAL % (b"AccessDenied", b"Access Denied")),
    },
    "Azurite": {
        CredentialsRejectedError: faults.answer(
            "403 Forbidden",
            {"x-ms-error-code": "AuthenticationFailed", "x-ms-request-id": "1", "x-ms-version": "2021-08-06", **XML},
            S3_REFUSAL % (b"AuthenticationFailed", b"Signature did not match"),
        ),
        StoragePermissionError: faults.answer(
            "403 Forbidden",
            {
                "x-ms-error-code": "AuthorizationPermissionMismatch",
                "x-ms-request-id": "1",
                "x-ms-version": "2021-08-06",
                **XML,
            },
            S3_REFUSAL % (b"AuthorizationPermissionMismatch", b"not authorized"),
        ),
    },
}


@pytest.mark.parametrize(("server_name", "kind"), [(name, kind) for name in REFUSALS for kind in REFUSALS[name]])
def test_refusals_are_told_at_once(
    start_server: Callable[[str], BucketServer],
    open_bucket: Callable[[str], Bucket],
    tmp_path: Path,
    server_name: str,
    kind: type[StorageError],
) -> None:
    """Expired credentials and missing permissions, by every call, with the place and the permission's name."""
    with start_stand(start_server(server_name), open_bucket, tmp_path, LIMITS) as stand:
        stand.proxy.fault(lambda request: True, REFUSALS[server_name][kind])
        began = time.monotonic()

        errors = {name: error_of(call) for name, call in calls_on(stand.faulty, Scene.new(tmp_path)).items()}

        assert {name: type(error) for name, error in errors.items()} == dict.fromkeys(errors, kind)
        assert all(stand.faulty.url.partition("?")[0] in str(error) for error in errors.values())
        assert time.monotonic() - began < LIMITS.deadline_s
        for error in errors.values():
            assert not isinstance(error, StoragePermissionError) or error.permission in str(error)


@pytest.mark.parametrize("storage_id", ["..", "../other", "a/b", "", ".leases", "a\\b", "a\0"])
def test_an_id_that_leads_elsewhere_is_refused(gcs: Stand, tmp_path: Path, storage_id: str) -> None:
    """A storage id that is no plain name is refused by every call without a request."""
    scene = Scene(storage_id, {}, tmp_path / "target")
    calls = calls_on(gcs.faulty, scene)

    for name in ("save", "manifest", "download", "delete"):
        with pytest.raises(UnsafePathError):
            calls[name]()

    assert gcs.proxy.requests == 1  # the one that opened the bucket


@pytest.mark.parametrize(
    "name", ["../escaped", "../../escaped", "/escaped", "a/../../escaped", "a//escaped", "./escaped", "escaped\0"]
)
def test_a_manifest_that_names_files_elsewhere_is_damaged(gcs: Stand, tmp_path: Path, name: str) -> None:
    """A manifest with unsafe file names is damaged, and no file is written."""
    entry = FileEntry(size_bytes=4, crc32c="00000000")
    manifest = Manifest(storage_id=ID, created=1.0, files={"good": entry, name: entry}, metadata={"steps_completed": 1})
    gcs.bucket.put(f"{ID}/.manifest.json", encode_manifest(manifest))
    with contextlib.suppress(Exception):  # a store may refuse the name itself
        gcs.bucket.put(f"{ID}/{name}", b"evil")
    gcs.direct.check_writable()  # makes the directory for the locks of leases
    before = sorted(tmp_path.rglob("*"))

    for call in (gcs.direct.download, lambda storage_id, _: gcs.direct.verify(storage_id)):
        with pytest.raises(CheckpointDamagedError, match="not safe") as raised:
            call(ID, tmp_path / "a" / "target")
        assert raised.value.storage_id == ID

    assert [path for path in sorted(tmp_path.rglob("*")) if path not in before] == []


def test_hostile_names_beside_a_checkpoint_touch_nothing_else(stand: Stand, tmp_path: Path) -> None:
    """Objects with hostile names next to a checkpoint are not restored, but fail its verification."""
    scene = Scene.new(tmp_path)
    work.save(stand.direct, scene)
    for name in ("../../escaped", "/escaped", "..\\..\\escaped", "layers/../../escaped"):
        with contextlib.suppress(Exception):  # a store may refuse the name itself
            stand.bucket.put(f"{scene.storage_id}/{name}", b"evil")
    for folder in ("..", "a\\b", ".leases"):
        with contextlib.suppress(Exception):
            stand.bucket.put(f"{folder}/.manifest.json", b"evil")

    stand.direct.download(scene.storage_id, scene.directory)

    work.check_directory(scene.directory, scene.content)
    assert list(tmp_path.rglob("*escaped*")) == []
    assert checkpoint_ids(stand.direct) == [scene.storage_id]
    with pytest.raises(CheckpointDamagedError, match="was not there when the checkpoint was written"):
        stand.direct.verify(scene.storage_id)
    stand.direct.delete(scene.storage_id)
    with pytest.raises(CheckpointNotFoundError):
        stand.direct.manifest(scene.storage_id)


def test_a_lease_that_is_none_of_ours_disturbs_no_sweep(gcs: Stand, tmp_path: Path) -> None:
    """Invalid leases in the bucket affect neither the sweep nor complete checkpoints."""
    scene = Scene.new(tmp_path)
    work.save(gcs.direct, scene)
    lease = b'{"storage_id": "%s", "machine": "m", "lock": "/nowhere", "host": "h", "pid": 1}'
    for index, content in enumerate([b"", b"evil", lease % b"../..", lease % scene.storage_id.encode(), b"[]"]):
        gcs.bucket.put(f".leases/{index}", content)

    gcs.sweeper.sweep()

    assert checkpoint_ids(gcs.direct) == [scene.storage_id]
    gcs.direct.verify(scene.storage_id)


def test_what_0_1_0_has_left_behind_is_swept(gcs: Stand) -> None:
    """A lease of 0.1.0 whose owner is dead is swept, with the files of its checkpoint."""
    gcs.bucket.put(
        f".claims/{ID}", b'{"storage_id": "%s", "machine": "m", "lock": "/l", "host": "h", "pid": 1}' % ID.encode()
    )
    gcs.bucket.put(f"{ID}/weights.bin", b"half")

    swept = gcs.sweeper.sweep()

    assert [one.rstrip("/").endswith(ID) for one in swept] == [True]
    assert gcs.object_names() == [CLOCK]


@promise("bucket-checkpoint-whole")
@pytest.mark.parametrize("damage", ["altered", "shorter", "gone"])
def test_a_damaged_object_is_named(stand: Stand, tmp_path: Path, damage: str) -> None:
    """A damaged object is named by restores and verifications, and other files can be read."""
    scene = Scene.new(tmp_path)
    work.save(stand.direct, scene)
    content = scene.content["optimizer/c.bin"]
    name = f"{scene.storage_id}/optimizer/c.bin"
    if damage == "gone":
        stand.bucket.delete(name)
    else:
        stand.bucket.put(name, content[:-1] + (b"" if damage == "shorter" else bytes([content[-1] ^ 1])))

    for call in (
        lambda: stand.direct.download(scene.storage_id, scene.directory),
        lambda: stand.direct.verify(scene.storage_id),
    ):
        with pytest.raises(CheckpointDamagedError) as raised:
            call()
        assert raised.value.file == "optimizer/c.bin"

    assert not (scene.directory / "optimizer" / "c.bin").exists()
    assert not (scene.directory / ".manifest.json").exists()
    stand.direct.download(scene.storage_id, scene.directory.with_suffix(".rest"), lambda name: "optimizer" not in name)


def test_a_download_that_does_not_fit_is_refused_before_it_begins(gcs: Stand, tmp_path: Path, small_disk: Path) -> None:
    """A download that does not fit is refused with the needed bytes before it begins."""
    scene = Scene.new(tmp_path, large_bytes=2 << 20)
    work.save(gcs.direct, scene)

    with pytest.raises(NotEnoughSpaceError) as raised:
        gcs.direct.download(scene.storage_id, small_disk / "copy")

    assert raised.value.needed_bytes > 2 << 20
    assert list((small_disk / "copy").iterdir()) == []


def test_a_disk_that_fills_during_a_download_is_told(gcs: Stand, tmp_path: Path, small_disk: Path) -> None:
    """If the disk fills during a download, complete files stay and the download can be continued."""
    scene = Scene.new(tmp_path, large_bytes=600_000)
    work.save(gcs.direct, scene)
    target = small_disk / "copy"
    reached, released = threading.Event(), threading.Event()
    gcs.proxy.fault(lambda request: request.path.endswith("large.bin"), faults.stall(reached, released))

    with ThreadPoolExecutor(1) as pool:
        download = pool.submit(gcs.faulty.download, scene.storage_id, target)
        assert reached.wait(30)
        with contextlib.suppress(OSError), (small_disk / "other").open("wb", buffering=0) as other:
            while other.write(bytes(4096)):
                pass
        released.set()
        error = download.exception()

    assert isinstance(error, NotEnoughSpaceError)
    assert not (target / ".manifest.json").exists()
    there = {name: content for name, content in work.directory_content(target).items() if ".core-sdk-" not in name}
    assert there == {name: scene.content[name] for name in there}
    (small_disk / "other").unlink()
    gcs.proxy.reset()
    gcs.faulty.download(scene.storage_id, target)
    work.check_directory(target, scene.content)


SECRET_KEY = "planted-secret-key"
SESSION_TOKEN = "planted-session-token"


@promise("credentials-hidden")
def test_no_secret_of_s3_is_told(
    start_server: Callable[[str], BucketServer],
    open_bucket: Callable[[str], Bucket],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Secrets of S3 appear in no log, error, repr or URL."""
    server = start_server("moto")
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION_TOKEN)

    with start_stand(_WithSecretKey(server), open_bucket, tmp_path, LIMITS) as stand:
        told = all_that_is_told(stand, tmp_path) + caplog.text

    assert SECRET_KEY not in told
    assert SESSION_TOKEN not in told


@promise("credentials-hidden")
@needs("azurite")
def test_no_secret_of_azure_is_told(
    start_server: Callable[[str], BucketServer],
    open_bucket: Callable[[str], Bucket],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Azure's connection string and key appear in no log or error."""
    from buckets.azure import KEY

    caplog.set_level(logging.DEBUG)

    with start_stand(start_server("Azurite"), open_bucket, tmp_path, LIMITS) as stand:
        told = all_that_is_told(stand, tmp_path) + caplog.text

    assert KEY not in told
    assert "AccountKey" not in told


def test_the_url_of_an_upload_session_is_not_told(gcs: Stand, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The URL of an upload session appears in no log or error."""
    caplog.set_level(logging.DEBUG)

    told = all_that_is_told(gcs, tmp_path) + caplog.text

    assert "upload_id=" not in told


class _WithSecretKey:
    """A server whose key is a text that tests can search for."""

    def __init__(self, server: BucketServer) -> None:
        self.name = server.name
        self.address = server.address
        self.make_bucket = server.make_bucket
        self._variables = server.variables

    def variables(self, address: tuple[str, int] | None = None) -> dict[str, str]:
        return self._variables(address) | {"AWS_SECRET_ACCESS_KEY": SECRET_KEY}


def all_that_is_told(stand: Stand, tmp_path: Path) -> str:
    """Returns all texts of calls that succeed and of calls that fail in every way."""
    scene = Scene.new(tmp_path)
    work.save(stand.faulty, scene)
    stand.faulty.download(scene.storage_id, scene.directory)
    texts = [repr(stand.faulty), repr(stand.faulty.__dict__), stand.faulty.url]
    short = BucketStorage(stand.proxied, temp_dir=tmp_path, limits=Limits(deadline_s=0.0))
    for fault in (
        faults.drop_request(),
        faults.status(503),
        faults.captive_portal(),
        faults.answer("403 Forbidden", XML, S3_REFUSAL % (b"AccessDenied", b"no")),
        faults.answer("400 Bad Request", JSON, GCS_REFUSAL % (400, b"no", b"invalid")),
    ):
        stand.proxy.reset()
        stand.proxy.fault(lambda request: True, fault)
        texts += [told_of(error_of(call)) for call in calls_on(short, Scene.new(tmp_path)).values()]
    stand.proxy.reset()
    return "\n".join(texts)


TRAINING = """
import os, sys
import core_sdk.core

storage = {"type": "s3", "bucket": sys.argv[1], "endpoint_url": sys.argv[2]}
storage |= {"access_key": "test", "secret_key": os.environ["PLANTED"]}
with core_sdk.core.init(checkpoint_storage=storage) as ctx:
    with ctx.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
        (path / "model.bin").write_bytes(b"model")
    print(storage_id)
"""


@promise("credentials-hidden")
def test_no_secret_of_a_configuration_is_recorded(
    start_server: Callable[[str], BucketServer],
    run_script: Callable[..., tuple[int, str, str]],
    home: Home,
) -> None:
    """Secrets in a storage configuration are recorded in no file of the home."""
    server = start_server("moto")
    bucket = server.make_bucket().split("/")[2]
    endpoint = f"http://{server.address[0]}:{server.address[1]}"

    status, output, errors = run_script(TRAINING, bucket, endpoint, PLANTED=SECRET_KEY)

    assert status == 0, errors
    recorded = {path: path.read_bytes() for path in home.root.rglob("*") if path.is_file()}
    assert any(f"s3://{bucket}".encode() in content for content in recorded.values())
    assert [path for path, content in recorded.items() if SECRET_KEY.encode() in content] == []
    assert SECRET_KEY not in output + errors
