"""The reference of the configuration is made from its types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_page_is_what_the_types_say(tmp_path: Path) -> None:
    """The configuration page is what `docs/configuration_page.py` generates from the types."""
    page = tmp_path / "configuration.md"

    subprocess.run([sys.executable, str(DOCS / "configuration_page.py"), str(page)], check=True)

    assert page.read_text() == (DOCS / "configuration.md").read_text()
