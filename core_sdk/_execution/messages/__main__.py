"""The sender's process, `python -P -m core_sdk._execution.messages HOME`."""

from __future__ import annotations

import sys
from pathlib import Path

from core_sdk._execution.messages._sending import send_waiting

if __name__ == "__main__":
    send_waiting(Path(sys.argv[1]))
