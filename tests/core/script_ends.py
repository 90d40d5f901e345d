"""Ways for a script to hold its Context, and ways for it to end, which take the place of `END`."""

from __future__ import annotations

IMPORTS = """
import contextlib, os, signal, sys
import core_sdk
from core_sdk import core
"""
HOLDS = {
    "with": """
with core.init() as context:
    context.train.report_training_metrics(1, {"loss": 1.0})
    END
""",
    "stack": """
with contextlib.ExitStack() as stack:
    context = stack.enter_context(core.init())
    context.train.report_training_metrics(1, {"loss": 1.0})
    END
""",
    "start": """
context = core.init()
context.start()
context.train.report_training_metrics(1, {"loss": 1.0})
if True:
    END
""",
    "finally": """
context = core.init()
context.start()
try:
    context.train.report_training_metrics(1, {"loss": 1.0})
    END
finally:
    context.close()
""",
    "function": """
def train():
    context = core.init()
    context.start()
    context.train.report_training_metrics(1, {"loss": 1.0})
    END
train()
""",
    "generator": """
def steps():
    with core.init() as context:
        while True:
            context.train.report_training_metrics(1, {"loss": 1.0})
            yield context
for context in steps():
    END
    break
""",
}
ALL = tuple(HOLDS)
STOP = """context.preempt.should_preempt(); signal.raise_signal(signal.SIGTERM)
    while not context.preempt.should_preempt(): pass
    """
SAVE = """with context.checkpoint.store_path({"steps_completed": 1}) as (path, _): path.joinpath("x").touch()
    """
FAILED_SAVE = """
    with context.checkpoint.store_path({"steps_completed": 2}) as (path, _): raise OSError(28, "No space left")
    """
