"""Configurations and code. Files of an archive are found by their names in it; nothing is unpacked."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import tarfile
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import msgspec
from starlette.responses import FileResponse

from core_sdk._analysis.evidence import code_changes
from core_sdk._execution.experiments.submitted import SubmittedExperiment
from core_sdk._ground.config import from_mapping, masked, to_mapping, to_yaml
from core_sdk._ground.masking import masked_text
from core_sdk._home import Home
from core_sdk._interfaces.server.errors import RequestError
from core_sdk._interfaces.server.route import Id, Query, Text
from core_sdk._interfaces.server.routes.bounds import bounded_values, num_values
from core_sdk._interfaces.server.shared_view import SharedView
from core_sdk.errors import CodeDamagedError

_MAX_SHOWN_BYTES = 1 << 20
_MAX_FILES = 10_000
_MAX_BYTES = 256 << 20
_MAX_MEMBERS = 20_000
"""The part of an archive that the page reads. It holds whatever somebody has submitted."""
_BLOCK_BYTES = 1 << 20


class ConfigurationAnswer(msgspec.Struct, frozen=True):
    completed: dict[str, Any] | None
    """The configuration with all defaults; secrets are masked. None for trials that were not submitted."""
    yaml: str
    original: str
    """The configuration as its author wrote it, comments included, where it has no secrets; else empty."""
    hparams: dict[str, Any] | None = None
    """The first 1,000 hyperparameters of the trial that was asked about."""
    num_hparams: int = 0


class CodeFile(msgspec.Struct, frozen=True):
    name: str
    size_bytes: int


class CodeAnswer(msgspec.Struct, frozen=True):
    sha256: str | None
    """None if the experiment has no code of its own."""
    files: list[CodeFile]


class CodeDifference(msgspec.Struct, frozen=True):
    """A file that only one of two experiments has, or that differs."""

    name: str
    size_bytes: int | None
    """The size of the file; None where the experiment has no such file."""
    other_size_bytes: int | None


class CodeDifferencesQuery(Query, frozen=True):
    other: Id
    """The experiment to compare with."""


class CodeDifferencesAnswer(msgspec.Struct, frozen=True):
    sha256: str | None
    """None if the experiment has no code of its own."""
    other_sha256: str | None
    files: list[CodeDifference]


class SourceDifferencesQuery(Query, frozen=True):
    other: Id
    """The trial to compare with."""


class SourceDifference(msgspec.Struct, frozen=True):
    """A file that differs between the sources of two trials."""

    name: str
    lines: list[str]
    """The hunks of a unified difference without context, from the other trial to this one."""


class SourceDifferencesAnswer(msgspec.Struct, frozen=True):
    files: list[SourceDifference] | None
    """None if the sources of one of the trials were not kept."""
    notes: list[str]
    """What one must know to trust it."""
    num_left_out: int
    """The number of lines beyond 1 MiB of text."""


class CodeFileQuery(Query, frozen=True):
    name: Text


class FileAnswer(msgspec.Struct, frozen=True):
    name: str
    text: str | None
    """The file's text; None if it is not text, or larger than 1 MiB."""
    size_bytes: int


def configuration(shared: SharedView, experiment_id: Id) -> ConfigurationAnswer:
    """Returns the configuration of an experiment."""
    if not shared.home.experiment(experiment_id).read().is_submitted:
        return ConfigurationAnswer(None, "", "")
    submitted = SubmittedExperiment(shared.home, experiment_id)
    everything = to_mapping(submitted.config)
    shown = masked(everything)
    original = submitted.folder.read_original_config().decode(errors="replace") if shown == everything else ""
    return ConfigurationAnswer(shown, to_yaml(from_mapping(shown).config), original)


def trial_configuration(shared: SharedView, trial_id: Id) -> ConfigurationAnswer:
    """Returns the configuration of a trial's experiment, and the trial's hyperparameters."""
    row = shared.ask(lambda view: view.trial(trial_id))
    of_trial = {"hparams": bounded_values(row.hparams), "num_hparams": num_values(row.hparams)}
    return msgspec.structs.replace(configuration(shared, row.experiment_id), **of_trial)


def code(shared: SharedView, experiment_id: Id) -> CodeAnswer:
    """Returns the files of an experiment's code."""
    home = shared.home
    sha256 = _sha256(home, experiment_id)
    if sha256 is None:
        return CodeAnswer(None, [])
    with _opened(home, sha256) as archive:
        files = [CodeFile(one.name, one.size) for one in _members(archive) if one.isfile()][:_MAX_FILES]
    return CodeAnswer(sha256, files)


def code_differences(shared: SharedView, experiment_id: Id, query: CodeDifferencesQuery) -> CodeDifferencesAnswer:
    """Returns the files in which the code of two experiments differs."""
    home = shared.home
    sha256, other_sha256 = _sha256(home, experiment_id), _sha256(home, query.other)
    if sha256 is None or other_sha256 is None or sha256 == other_sha256:
        return CodeDifferencesAnswer(sha256, other_sha256, [])
    ours, theirs = _digests(home, sha256), _digests(home, other_sha256)
    nothing = (None, b"")
    files = [
        CodeDifference(name, ours.get(name, nothing)[0], theirs.get(name, nothing)[0])
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    ]
    return CodeDifferencesAnswer(sha256, other_sha256, files[:_MAX_FILES])


def source_differences(shared: SharedView, trial_id: Id, query: SourceDifferencesQuery) -> SourceDifferencesAnswer:
    """Returns the lines in which the sources of two trials differ that `core-sdk run` has kept."""
    for one in (trial_id, query.other):
        shared.ask(lambda view, asked=one: view.trial(asked))  # type: ignore[misc]
    changes = code_changes(shared.home.trial(query.other), shared.home.trial(trial_id))
    if changes.files is None:
        return SourceDifferencesAnswer(None, changes.notes, 0)
    files: list[SourceDifference] = []
    left_bytes, num_left_out = _MAX_SHOWN_BYTES, 0
    for name, (_, *lines) in changes.files.items():
        ends = list(accumulate(map(len, lines)))
        shown = lines[: bisect_right(ends, left_bytes)]
        left_bytes -= sum(map(len, shown))
        num_left_out += len(lines) - len(shown)
        if len(files) < _MAX_FILES:
            files.append(SourceDifference(name, list(map(masked_text, shown))))
    return SourceDifferencesAnswer(files, changes.notes, num_left_out)


def code_archive(shared: SharedView, experiment_id: Id) -> FileResponse:
    """Returns all files of an experiment's code, as an archive."""
    home = shared.home
    sha256 = _sha256(home, experiment_id)
    if sha256 is None:
        raise RequestError(404, "no_such_file", f"experiment {experiment_id} has no code of its own")
    with _opened(home, sha256):
        pass  # it can be read
    name = f"experiment-{experiment_id}-code.tar.gz"
    return FileResponse(home.code_archive(sha256), media_type="application/gzip", filename=name)


def code_file(shared: SharedView, experiment_id: Id, query: CodeFileQuery) -> FileAnswer:
    """Returns the text of one file of an experiment's code."""
    home = shared.home
    sha256 = _sha256(home, experiment_id)
    if sha256 is not None:
        with _opened(home, sha256) as archive:
            for one in _members(archive):
                if one.name == query.name and one.isfile():
                    file = archive.extractfile(one)
                    content = b"" if file is None else file.read(_MAX_SHOWN_BYTES + 1)
                    return FileAnswer(one.name, _text(content), one.size)
    raise RequestError(404, "no_such_file", "the experiment's code has no file of this name")


def _sha256(home: Home, experiment_id: int) -> str | None:
    folder = home.experiment(experiment_id)
    if not folder.read().is_submitted:
        return None
    return folder.read_submission().code


def _digests(home: Home, sha256: str) -> dict[str, tuple[int | None, bytes]]:
    """Returns the size and the digest of each file."""
    found: dict[str, tuple[int | None, bytes]] = {}
    with _opened(home, sha256) as archive:
        for one in _members(archive):
            digest = hashlib.sha256(one.linkname.encode())  # what a link leads to may be anywhere
            if one.isreg() and (file := archive.extractfile(one)) is not None:
                while block := file.read(_BLOCK_BYTES):
                    digest.update(block)
            if one.isreg() or one.issym():
                found[one.name] = one.size, digest.digest()
    return found


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yields the members in their order. A file of holes, which takes no place in the archive, counts as it is long."""
    size_bytes = 0
    for number, one in enumerate(archive):
        size_bytes += one.size
        if number == _MAX_MEMBERS or size_bytes > _MAX_BYTES:
            raise _too_large()
        yield one


class _BoundedStream(io.RawIOBase):
    """A compressed file whose content may be very much larger than itself, of which only a part is read."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream = stream
        self._left_bytes = _MAX_BYTES

    def read(self, size: int = -1) -> bytes:
        content = self._stream.read(min(size, _BLOCK_BYTES))
        self._left_bytes -= len(content)
        if self._left_bytes < 0:
            raise _too_large()
        return content


def _too_large() -> RequestError:
    message = (
        f"the code has more than {_MAX_BYTES >> 20} MiB or {_MAX_MEMBERS:,} files, which is more than the page reads"
    )
    return RequestError(413, "too_large", message, "`core-sdk experiment download-code ID` unpacks it.")


@contextlib.contextmanager
def _opened(home: Home, sha256: str) -> Iterator[tarfile.TarFile]:
    """Opens the archive, to be read from its beginning.

    Raises `CodeDamagedError`, also for damage that is found while it is read, and `RequestError` if it is too large.
    """
    path = home.code_archive(sha256)
    try:
        with gzip.open(path) as stream, tarfile.open(fileobj=_BoundedStream(stream), mode="r|") as archive:
            yield archive
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise CodeDamagedError(path, f"cannot be read: {error}") from error


def _text(content: bytes) -> str | None:
    if len(content) > _MAX_SHOWN_BYTES or b"\0" in content:
        return None
    return content.decode(errors="replace")
