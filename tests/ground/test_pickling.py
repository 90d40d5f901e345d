"""Functions of a script keep the name of their file on the way to another process."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from core_sdk import core

_SENDER = """
import sys
from core_sdk._ground.pickling import dumps_by_value

def outer():
    def inner(number):
        return (lambda: 1 / number)()
    return inner

class Model:
    def forward(self):
        return 0

sys.stdout.buffer.write(dumps_by_value((outer(), Model)))
"""
_RECEIVER = """
import inspect, pickle, sys, traceback
inner, Model = pickle.load(sys.stdin.buffer)
print(inspect.getsource(Model.forward))
inner(0)
"""


def test_the_source_is_found_in_another_process(tmp_path: Path) -> None:
    """In another process, tracebacks of unpickled functions show their source, and inspect.getsource() finds it."""
    script = tmp_path / "script.py"
    script.write_text(_SENDER)
    pickled = subprocess.run([sys.executable, script], capture_output=True, check=True).stdout
    receiver = subprocess.run([sys.executable, "-c", _RECEIVER], input=pickled, capture_output=True, check=False)
    assert "return 0" in receiver.stdout.decode(), receiver.stderr.decode()
    errors = receiver.stderr.decode()
    assert f'File "{script}", line 7, in <lambda>' in errors
    assert "return (lambda: 1 / number)()" in errors


@pytest.mark.parametrize("send", [pickle.dumps, copy.deepcopy, copy.copy])
def test_a_context_and_its_parts_say_why_they_stay_in_their_process(send: Callable[[object], object]) -> None:
    """A Context and its parts refuse to be pickled or copied, and only the info can be sent."""
    with core.init() as context:
        parts = [context, *(value for name, value in vars(context).items() if name in core.Context.__annotations__)]

        for part in parts:
            if part is context.info:
                assert send(part)
                continue
            with pytest.raises(TypeError, match=f"{type(part).__name__} cannot be pickled or copied: .* Give other"):
                send(part)
    assert len(parts) == 9
