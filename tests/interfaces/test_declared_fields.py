"""A field that is declared in its record and in its row is at every door."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from interfaces.asking_doors import BUDGET, DIGEST, REVIEWER, SPONSOR, TOKENS

import core_sdk

_FOLDERS, _JOURNAL, _ROWS = "_ground/records/_folders.py", "_ground/records/_journal.py", "_home/rows.py"
_FIELDS = [
    (_FOLDERS, "class TrialDescription(", '    hypothesis: str = ""\n', "    budget: float = 0.0\n"),
    (_FOLDERS, "class ExperimentRecord(", '    description: str = ""\n', '    sponsor: str = ""\n'),
    (_JOURNAL, "class TrialDescribed(", "    verdict_reason: str | None = None\n", "    reviewer: str | None = None\n"),
    (_JOURNAL, "class CheckpointStored(", "    resources: dict[str, Int64]\n", '    digest: str = ""\n'),
    (_JOURNAL, "class Report(", "    json_metrics: dict[str, Any] | None = None\n", "    tokens: int = 0\n"),
    (_ROWS, "class ExperimentRow(", "", '    sponsor: Annotated[str, Title("Sponsor")]\n'),
    (_ROWS, "class TrialRow(", "", '    budget: Annotated[float, Title("Budget")]\n'),
    (_ROWS, "class TrialRow(", "", '    reviewer: Annotated[str, Title("Reviewer")] = ""\n'),
    (_ROWS, "class CheckpointRow(", "", '    digest: Annotated[str, Title("Digest")]\n'),
    (_ROWS, "class ReportRow(", "    rank: Source = 0\n", "    tokens: int = 0\n"),
    (_ROWS, "    def recorded(", "            rank=rank,\n", "            tokens=report.tokens,\n"),
]
"""Each field: its file, its class, a line of that, and what is added behind it."""


def _sdk_with_fields(directory: Path) -> None:
    """Makes a copy of `core_sdk` with the fields."""
    original = Path(core_sdk.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(original, directory / "core_sdk", copy_function=os.symlink, ignore=ignored)
    for name, where, line, added in _FIELDS:
        path = directory / "core_sdk" / name
        text = path.read_text()
        path.unlink()
        head, begin, rest = text.partition(where)
        before, found, after = rest.partition(line or "\n")
        assert begin and found
        path.write_text(f"{head}{begin}{before}{found}{added}{after}")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What the doors of an SDK with the fields know of each, by its name."""
    directory = tmp_path_factory.mktemp("doors")
    _sdk_with_fields(directory)
    path = os.pathsep.join(map(str, (directory, Path(__file__).parents[1])))
    home = str(directory / "home")
    asked = subprocess.run(
        [sys.executable, "-m", "interfaces.asking_doors", home],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": path, "CORE_SDK_HOME": home},
        stdout=subprocess.PIPE,
        check=True,
    )
    answers: dict[str, Any] = json.loads(asked.stdout)
    return answers


@pytest.mark.parametrize(("name", "value"), [("budget", BUDGET), ("reviewer", REVIEWER)])
def test_a_field_of_a_trial_is_at_every_door(told: Mapping[str, Any], name: str, value: object) -> None:
    """It is in JSON, CSV, conditions, orders, columns, SQL, the server's answers and the page's columns."""
    found = told[name]

    assert set(found["values"]) == {value}
    assert name in found["csv"]
    assert name in found["table"]
    assert f" {name.title()} " in found["described"]
    assert found["page"] == [name.title()]


@pytest.mark.parametrize(("name", "value"), [("sponsor", SPONSOR), ("digest", DIGEST)])
def test_a_field_of_an_experiment_or_a_checkpoint_is_at_every_door(
    told: Mapping[str, Any], name: str, value: object
) -> None:
    """It is in JSON, SQL and the server's answers, and is described under its title."""
    assert set(told[name]["values"]) == {value}
    assert f" {name.title()} " in told[name]["described"]


def test_a_field_of_a_report_is_read(told: Mapping[str, Any]) -> None:
    """It is kept by the index, and printed as JSON."""
    assert told["tokens"]["values"] == [TOKENS]
