"""The process that keeps the store in which the ranks of one node meet."""

from __future__ import annotations

import datetime
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from processes import wait_for
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from launch._torchrun import _store_process

# A torch whose library lies elsewhere, and which can be imported as usual.
_OTHER_TORCH = """\
import sys

sys.path.remove({directory!r})
del sys.modules["torch"]
import torch
"""


@contextmanager
def kept_store(search_path: Path) -> Iterator[tuple[TCPStore, psutil.Process]]:
    """Yields a client of the store, and the process that keeps it and finds modules on this path first."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number, port = listener.fileno(), listener.getsockname()[1]
        command = [sys.executable, "-P", _store_process.__file__, str(number)]
        variables = {"PYTHONPATH": str(search_path)}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[number], env=variables)
    with process:
        limit = datetime.timedelta(seconds=60)
        store = TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=limit)
        yield store, psutil.Process(process.pid)
        assert process.stdin is not None
        process.stdin.close()
        wait_for(lambda: process.poll() == 0)


def test_the_store_loads_torchs_library_alone(tmp_path: Path) -> None:
    """Ranks find what others have set, in a process that has loaded neither torch's Python modules nor NumPy."""
    with kept_store(tmp_path) as (store, process):
        store.set("a", "b")

        assert store.get("a") == b"b"
        assert store.add("n", 2) == 2
        files = {Path(mapped.path).name for mapped in process.memory_maps()}
        assert "libtorch_cpu.so" in files
        assert not any(name.startswith("_multiarray_umath") for name in files)
        assert _store_process.WHOLE_TORCH not in process.cmdline()


def test_a_torch_that_is_built_otherwise_is_imported_whole(tmp_path: Path) -> None:
    """The store works, too, where torch's library cannot be loaded alone."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(_OTHER_TORCH.format(directory=str(tmp_path)))

    with kept_store(tmp_path) as (store, process):
        store.set("a", "b")

        assert store.get("a") == b"b"
        assert _store_process.WHOLE_TORCH in process.cmdline()
