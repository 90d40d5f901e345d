"""The pusher of a home, `python -P -m core_sdk._workspace HOME`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from core_sdk._workspace.following import push_wanted

if __name__ == "__main__":
    os.nice(10)  # the training beside it has precedence
    push_wanted(Path(sys.argv[1]))
