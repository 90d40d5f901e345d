"""Trials, experiments and checkpoints as a notebook's cell shows them, in a real kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from parts import needs
from processes import TIMEOUT_S, Script

TRAIN = """
    import time
    from pathlib import Path
    from core_sdk import core
    with core.init(name="<b>digits</b>", hparams={"lr": 0.1}) as context:
        for step in range(1, 4):
            context.train.report_training_metrics(step, {"loss": 1 / step})
            print("reported", step, flush=True)
            while not Path(f"go{step}").exists():
                time.sleep(0.01)
        with context.checkpoint.store_path({"steps_completed": 3}) as (path, _):
            (path / "model").write_text("weights")
"""


def shown(kernel: Any, kind: str, text: str) -> str:
    """Blocks until the kernel displays HTML that has this text, and returns the HTML. `kind` is the message's kind."""
    while True:
        message = kernel.get_iopub_msg(timeout=TIMEOUT_S)
        assert message["msg_type"] != "error", message["content"]
        found = message["content"].get("data", {}).get("text/html", "") if message["msg_type"] == kind else ""
        if text in found:
            return str(found)


@needs("kernel")
def test_a_cell_follows_a_running_trial_to_its_end(
    kernel: Any, start_script: Callable[..., Script], tmp_path: Path
) -> None:
    """The display of a running trial is updated until its end, while other cells can run."""
    script = start_script(TRAIN)
    script.read_until("reported 1")

    kernel.execute("from core_sdk import client; client.get_trial(1)")
    first = shown(kernel, "display_data", "ACTIVE")
    kernel.execute("print('free')")
    for step in (1, 2):
        (tmp_path / f"go{step}").touch()
    grown = shown(kernel, "update_display_data", "<td style='text-align:left'>3</td>")
    (tmp_path / "go3").touch()
    last = shown(kernel, "update_display_data", "COMPLETED")

    assert "&lt;b&gt;digits&lt;/b&gt; (1)" in first
    assert "lr=0.1" in first
    assert "<svg" in grown
    assert "<b>" not in last
    assert script.wait()[0] == 0
    kernel.execute("client.get_experiment(1)")
    assert "COMPLETED" in shown(kernel, "display_data", "<svg")
    kernel.execute("client.list_checkpoints()[0]")
    assert "in 2 files" in shown(kernel, "display_data", "Checkpoint")
