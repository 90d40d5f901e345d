"""The pusher of a home, `python -P -m core_sdk._execution.steering HOME`, with the verbs that it carries out."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from logging.handlers import RotatingFileHandler
from pathlib import Path

from core_sdk._execution.steering.afar import carry_out
from core_sdk._home.pushes import pusher_log
from core_sdk._machine.processes import outlive_stops
from core_sdk._workspace.following import push_wanted

_LOG_BYTES = 64 << 10

if __name__ == "__main__":
    outlive_stops()  # a trial that is resumed must not
    # On Linux each thread has a niceness of its own, which goes to what it starts: a trial that is resumed has ours.
    acting = ThreadPoolExecutor(1, "core-sdk-acting")
    acting.submit(time.time).result()
    os.nice(10)  # the training beside it has precedence
    home_root = Path(sys.argv[1])
    logger = logging.getLogger("core_sdk.tracking")
    with contextlib.suppress(OSError):  # then nobody reads of its problems
        handler = RotatingFileHandler(pusher_log(home_root), maxBytes=_LOG_BYTES, backupCount=1, errors="replace")
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logger.addHandler(handler)
    try:
        push_wanted(home_root, carry_out, acting, logger.warning)
    except Exception:  # nobody sees its standard error
        logger.exception("the pusher has ended")
        raise
