"""The code that evidence shows is the code that was trained, or what was edited meanwhile is named."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from interfaces.cli.commands import Cli, WriteScript

from core_sdk._home import Home

READING = """
    from pathlib import Path
    {edit}
    import model
    from core_sdk import core
    with core.init(name="edited") as context:
        context.train.report_training_metrics(1, {{"loss": model.VALUE}})
        {later}
    """
EDIT = 'Path("model.py").write_text("VALUE = 3\\n")'
KEPT = f"""
        import time
        while not list(Path({{runs!r}}).glob("2/1.imported.tar.gz")):
            time.sleep(0.01)
        {EDIT}
"""
SAVING = """
    import sys
    from core_sdk import core
    with core.init(name="resumed") as context:
        with context.checkpoint.store_path({"steps_completed": 1}):
            pass
        sys.exit(75 if context.preempt.should_preempt() else 0)
    """


def vary(cli: Cli, *options: str) -> None:
    finished = cli("run", *options, "--hypothesis", "why", "--", sys.executable, "train.py")
    assert finished.status == 0, finished.errors


def test_an_edit_between_the_copy_and_the_import_is_shown_and_named(
    cli: Cli, write_script: WriteScript, home: Home, tmp_path: Path
) -> None:
    """A file that is edited after `run` has copied it is shown as it was imported, and named."""
    (tmp_path / "model.py").write_text("VALUE = 1\n")
    write_script(READING.format(edit="", later=""))
    vary(cli)
    (tmp_path / "model.py").write_text("VALUE = 2\n")
    write_script(READING.format(edit=EDIT, later=""))
    vary(cli, "--parent", "1")

    shown = cli("trial", "evidence", "2").output

    assert "+VALUE = 3" in shown
    assert "+VALUE = 2" not in shown
    assert "code: edited after `run` had copied it, shown as it was trained: model.py" in shown
    assert "code: edited while it ran, so that it may have run an older version: model.py" in shown


def test_an_edit_for_the_next_trial_changes_nothing(
    cli: Cli, write_script: WriteScript, home: Home, tmp_path: Path
) -> None:
    """A file that is edited while a trial runs, for the next one, is shown as the trial has imported it."""
    (tmp_path / "model.py").write_text("VALUE = 1\n")
    write_script(READING.format(edit="", later=""))
    vary(cli)
    (tmp_path / "model.py").write_text("VALUE = 2\n")
    os.utime(tmp_path / "model.py", (time.time() + 1000,) * 2)  # the clock of a file server may be ahead
    later = KEPT.format(runs=str(home.root / "runs"))
    write_script(READING.format(edit="", later=later))
    vary(cli, "--parent", "1")

    shown = cli("trial", "evidence", "2").output

    assert (tmp_path / "model.py").read_text() == "VALUE = 3\n"
    assert "+VALUE = 2" in shown
    assert "edited" not in shown


def test_code_from_outside_of_the_directory_is_compared(
    cli: Cli, write_script: WriteScript, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of another directory, also one that is imported late, is kept and compared."""
    source = tmp_path.parent / f"{tmp_path.name}-src"
    source.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(source))
    write_script(READING.format(edit="", later="import late"))
    for value in (1, 2):
        (source / "model.py").write_text(f"VALUE = {value}\n")
        (source / "late.py").write_text(f"WIDTH = {value}\n")
        vary(cli, *(["--parent", "1"] if value == 2 else []))

    shown = json.loads(cli("trial", "evidence", "2", "--json").output)

    name = f"../{source.name}"
    assert {file: lines[-1] for file, lines in shown["changed_lines"].items()} == {
        f"{name}/late.py": "+WIDTH = 2",
        f"{name}/model.py": "+VALUE = 2",
    }


def test_a_resumed_trial_of_edited_code_says_so(
    cli: Cli, write_script: WriteScript, home: Home, tmp_path: Path
) -> None:
    """Code that was edited between two attempts is named; what continues a variation is a variation of that."""
    write_script(SAVING)
    vary(cli)
    vary(cli, "--parent", "1")
    assert "code: unchanged" in cli("trial", "evidence", "2").output
    write_script(f"{SAVING}\n    # edited\n")
    assert cli("trial", "resume", "2", "--again").status == 0
    assert cli("trial", "continue", "2").status == 0

    resumed = cli("trial", "evidence", "2").output
    continued = json.loads(cli("trial", "evidence", "3", "--json").output)

    assert "code: edited before attempt 2, which is shown: train.py" in resumed
    assert "+# edited" in resumed
    assert (continued["trial"]["parent"], continued["trial"]["hypothesis"]) == (2, "")
    assert continued["changed_lines"] == {}
