"""A training without torch that forgets on a resume what its first argument names."""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

from core_sdk import core

forgotten = sys.argv[1] if len(sys.argv) > 1 else ""
if forgotten == "all reports":
    raise SystemExit
if forgotten == "how to run":
    raise ValueError("it cannot")
starts = Path("starts")
if forgotten == "the order of its sums once":
    starts.write_text(f"{starts.read_text() if starts.exists() else ''}x")
seed = time.time_ns() if forgotten == "its seed" else 1
with core.init() as context:
    draws, value, total, count, first = random.Random(seed), 0.0, 0.0, 0, 1
    latest = context.info.latest_checkpoint
    if latest is not None and forgotten != "to load":
        with context.checkpoint.restore_path(latest) as path:
            state = json.loads((path / "state.json").read_text())
        first, value = state["step"] + 1, state["value"]
        if forgotten != "the mean":
            total, count = state["total"], state["count"]
        if forgotten != "the generator":
            version, internal, gauss = state["draws"]
            draws.setstate((version, tuple(internal), gauss))
    if forgotten == "the order of its sums once" and len(starts.read_text()) == 4:
        value *= 1 + 1e-7
    for step in range(first, 25):
        value += draws.gauss(0, 1)
        if step % 8 == 1:
            total, count = 0.0, 0
        total, count = total + value, count + 1
        metrics = {"value": value, "mean": total / count, "time": time.time()}
        context.train.report_training_metrics(step, metrics)
        is_stopping = forgotten != "stops" and context.preempt.should_preempt()
        if step % 8 == 0:
            context.train.report_validation_metrics(step, {"loss": value * value})
        if is_stopping or step % 5 == 0:
            with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                state = {"step": step, "value": value, "total": total, "count": count, "draws": draws.getstate()}
                (path / "state.json").write_text(json.dumps(state))
        if is_stopping:
            break
