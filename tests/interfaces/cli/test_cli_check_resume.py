"""`core-sdk check-resume`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from interfaces.cli.commands import Cli

_SCRIPT = Path(__file__).parents[2] / "analysis" / "resume_check" / "own_checkpoints.py"


def test_the_command_tells_as_text_or_json_how_a_training_goes_on(cli: Cli, tmp_path: Path) -> None:
    """The status is 1 for a training that differs, whose curves are drawn, and 2 for a moment that is none."""
    options = ("--resume-with", "--resume auto", "--metrics-from", "{dir}/log.jsonl")
    command = ("--", sys.executable, str(_SCRIPT), "--out", "{dir}", "--forget", "the generator")

    text = cli("check-resume", "--at", "middle", *options, *command)
    as_json = cli("check-resume", "--at", "13", "--output", str(tmp_path / "curves.svg"), "--json", *options, *command)
    refused = cli("check-resume", "--at", "end", *command)
    shared = cli("check-resume", "--metrics-from", "log.jsonl", *command)

    assert text.status == as_json.status == 1
    assert "stop after step 15: differs from step " in text.output
    assert "First report  Steps twice" in text.output
    assert "  A disturbed\n  B undisturbed\n" in text.output
    assert text.output.endswith("It does not go on exactly.\n")
    assert json.loads(as_json.output)["moments"][0]["verdict"] == "differs"
    assert "<svg" in (tmp_path / "curves.svg").read_text()
    assert refused.status == shared.status == 2
    assert "'end' is no moment" in refused.errors
    assert "all trainings would write into log.jsonl" in shared.errors
