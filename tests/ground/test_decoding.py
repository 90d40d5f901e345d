"""Typed values in many threads: the first uses of a type may come at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Each type is new to msgspec, and 8 threads, which take turns as often as they can, use it at once.
_THREADS = """\
import sys, threading, types
import msgspec
from core_sdk._ground.decoding import convert, json_decoder, msgpack_decoder

SOURCE = '''
from __future__ import annotations
import msgspec

class Inner(msgspec.Struct):
    a: int
    b: str
    c: list[int]

class First(msgspec.Struct, tag=True):
    items: list[Inner]
    inner: Inner

class Second(msgspec.Struct, tag=True):
    inner: Inner
    first: First | None = None
'''
DECODE = {
    "json": lambda value, kind: json_decoder(kind)(msgspec.json.encode(value)),
    "msgpack": lambda value, kind: msgpack_decoder(kind)(msgspec.msgpack.encode(value)),
    "values": lambda value, kind: convert(msgspec.to_builtins(value), kind),
}


def decode_at_once(number, decode):
    module = types.ModuleType(f"types{number}")
    sys.modules[module.__name__] = module
    exec(SOURCE, module.__dict__)
    inner = module.Inner(1, "s", [2])
    value = module.Second(inner, module.First([inner], inner))
    begin = threading.Barrier(8)
    decoded = []

    def run():
        begin.wait()
        decoded.append(decode(value, module.First | module.Second))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert decoded == [value] * 8


sys.setswitchinterval(1e-6)
for number in range(100):
    decode_at_once(number, DECODE[sys.argv[1]])
"""


@pytest.mark.parametrize("form", ["json", "msgpack", "values"])
def test_threads_may_use_a_type_for_the_first_time_at_once(tmp_path: Path, form: str) -> None:
    """Eight threads use a type that msgspec has not seen yet at once, and each gets its value."""
    script = tmp_path / "threads.py"
    script.write_text(_THREADS)

    done = subprocess.run([sys.executable, str(script), form], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_process_forked_while_a_thread_looks_up_a_type_can_decode(tmp_path: Path) -> None:
    """A process that is forked while another thread looks up the fields of a type can decode."""
    script = tmp_path / "forks.py"
    script.write_text(_THREADS.partition("sys.setswitchinterval")[0] + _FORKS)

    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")


_FORKS = """
import os

ended = threading.Event()


def look_up():
    number = 0
    while not ended.is_set():
        decode_at_once(number := number + 1, DECODE["json"])


sys.setswitchinterval(1e-5)
looking_up = threading.Thread(target=look_up)
looking_up.start()
for number in range(20):
    pid = os.fork()
    if pid == 0:
        json_decoder(dict[str, int])(b"{}")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
ended.set()
looking_up.join()
"""
