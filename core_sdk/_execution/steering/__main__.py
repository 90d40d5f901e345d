"""The pusher of a home, `python -P -m core_sdk._execution.steering HOME`, with the verbs that it carries out."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from core_sdk._execution.steering.afar import carry_out
from core_sdk._workspace.following import push_wanted

if __name__ == "__main__":
    # On Linux each thread has a niceness of its own, which goes to what it starts: a trial that is resumed has ours.
    acting = ThreadPoolExecutor(1, "core-sdk-acting")
    acting.submit(time.time).result()
    os.nice(10)  # the training beside it has precedence
    push_wanted(Path(sys.argv[1]), carry_out, acting)
