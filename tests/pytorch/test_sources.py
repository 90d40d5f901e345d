"""The user's own code that is kept with each checkpoint."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from core_sdk._ground.importing import import_from_path
from core_sdk.pytorch._fitting.sources import imported_sources


def test_only_files_that_exist_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch has modules whose `__file__` is a bare name, and an editor may have removed a file since its import."""
    (tmp_path / "model_def.py").write_text("import gone\n\nclass Trial:\n    pass\n")
    (tmp_path / "gone.py").touch()
    monkeypatch.chdir(tmp_path)
    with import_from_path(tmp_path):
        import gone  # type: ignore[import-not-found]
        import model_def  # type: ignore[import-not-found]

        monkeypatch.setitem(sys.modules, "made_up", type(sys)("made_up"))
        sys.modules["made_up"].__file__ = "made_up.py"
        Path(gone.__file__).unlink()

        sources = imported_sources(model_def.Trial)

    assert sources == {"model_def.py": tmp_path / "model_def.py"}
