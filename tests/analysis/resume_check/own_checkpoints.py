"""A training without Core SDK: flags and files of its own, and metrics in JSON lines, or in TensorBoard's files.

It goes on with `--resume auto`, and forgets what `--forget` names.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--resume", default="")
parser.add_argument("--forget", default="")
parser.add_argument("--events", action="store_true")
parser.add_argument("--ranks", default="1")
parser.add_argument("--steps", type=int, default=30)
arguments = parser.parse_args()
if arguments.forget == "that nobody answers":
    input("Which data? ")
if arguments.forget == "to stop":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
draws, value, first = random.Random(1), 0.0, 1
saved = arguments.out / "state.json"
if arguments.resume == "auto" and saved.exists() and arguments.forget != "to load":
    state = json.loads(saved.read_text())
    first, value = state["step"] + 1, state["value"]
    if arguments.forget != "the generator":
        version, internal, gauss = state["draws"]
        draws.setstate((version, tuple(internal), gauss))
log = (arguments.out / "log.jsonl").open("a")
writer = None
if arguments.events:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(arguments.out), flush_secs=1)
for step in range(first, arguments.steps + 1):
    value += draws.gauss(0, 1)
    if writer is not None:
        summary = Summary(value=[Summary.Value(tag="loss", simple_value=value)])
        writer.add_event(Event(step=step, wall_time=time.time(), summary=summary))
        writer.flush()
    else:
        log.write(json.dumps({"step": step, "loss": value, "ranks": int(arguments.ranks), "note": "text"}) + "\n")
        log.flush()
    if step % 5 == 0:
        (arguments.out / "new").write_text(json.dumps({"step": step, "value": value, "draws": draws.getstate()}))
        (arguments.out / "new").replace(saved)
    time.sleep(0.05)  # it takes as long as a step of a training: whoever reads the file sees it grow
