"""`core-sdk check-resume`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from interfaces.cli.commands import Cli

_SCRIPT = Path(__file__).parents[2] / "analysis" / "resume_check" / "forgetful.py"


def test_the_command_tells_as_text_or_json_how_a_training_goes_on(cli: Cli) -> None:
    """The status is 1 for a training that differs, and 2 for a moment that is none."""
    command = ("--", sys.executable, str(_SCRIPT), "the generator")

    text = cli("check-resume", "--at", "middle", *command)
    as_json = cli("check-resume", "--at", "13", "--json", *command)
    refused = cli("check-resume", "--at", "end", *command)

    assert text.status == as_json.status == 1
    assert "stop after step 13: differs from step 14 on: training.value" in text.output
    assert text.output.endswith("It does not go on exactly.\n")
    assert json.loads(as_json.output)["moments"][0]["verdict"] == "differs"
    assert refused.status == 2
    assert "'end' is no moment" in refused.errors
