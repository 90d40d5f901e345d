"""A script that counts to ten, and goes on from its newest checkpoint when it is started again."""

from __future__ import annotations


def counting_script(at_step_six: str) -> str:
    """Prints its trial, attempt and first step, and stores every fourth step; at step 6 it runs this line."""
    return f"""
import os, signal, subprocess, sys
from core_sdk import core

with core.init() as context:
    latest = context.info.latest_checkpoint
    step = 0
    if latest is not None:
        with context.checkpoint.restore_path(latest) as path:
            step = int((path / "step").read_text())
    print(context.info.trial.trial_id, context.info.trial.attempt, step, sep=".", flush=True)
    while step < 10:
        step += 1
        context.train.report_training_metrics(step, {{"loss": 0.5}})
        if step % 4 == 0:
            with context.checkpoint.store_path({{"steps_completed": step}}) as (path, _):
                (path / "step").write_text(str(step))
        if step == 6:
            {at_step_six}
"""
