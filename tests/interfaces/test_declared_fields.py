"""A field of a trial that is declared once is at every door."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import core_sdk
from core_sdk._home import Home

_FIELDS = {
    "_ground/records/_folders.py": ('    hypothesis: str = ""\n', "    budget: float = 0.0\n"),
    "_ground/records/_journal.py": ("    verdict_reason: str | None = None\n", "    reviewer: str | None = None\n"),
    "_home/rows.py": (
        '    verdict_reason: str = ""\n',
        '    budget: Annotated[float, Title("Budget")] = 0.0\n    reviewer: Annotated[str, Title("Reviewer")] = ""\n',
    ),
}
"""A field of `trial.json` and one of the journal, as lines of their records and of the row, each behind a line."""


def _sdk_with_fields(directory: Path) -> None:
    """Makes a copy of `core_sdk` with the two fields."""
    original = Path(core_sdk.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(original, directory / "core_sdk", copy_function=os.symlink, ignore=ignored)
    for name, (before, added) in _FIELDS.items():
        text = (original / name).read_text()
        assert text.count(before) == 1
        (directory / "core_sdk" / name).unlink()
        (directory / "core_sdk" / name).write_text(text.replace(before, before + added))


def test_a_field_that_is_declared_once_is_at_every_door(home: Home, tmp_path: Path) -> None:
    """A field of a record and of a row is in JSON, CSV, conditions, orders, columns, SQL, the server and the page."""
    _sdk_with_fields(tmp_path / "sdk")
    tests = Path(__file__).parents[1]
    path = os.pathsep.join(map(str, (tmp_path / "sdk", tests)))
    values = {"budget": 2.5, "reviewer": "Ada"}

    told = subprocess.run(
        [sys.executable, "-m", "interfaces.asking_doors", str(home.root), json.dumps(values)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path, "CORE_SDK_HOME": str(home.root)},
        stdout=subprocess.PIPE,
        check=True,
    )

    for name, found in json.loads(told.stdout).items():
        value, title = values[name], name.title()
        assert [found[door] for door in ("row", "json", "sql", "server")] == [value] * 4
        assert name in found["csv"]
        assert name in found["table"]
        assert f" {title} " in found["describe"]
        assert [(one["kind"], one["title"]) for one in found["page"]] == [("field", title)]
        assert found["cells"] == [[value]]
