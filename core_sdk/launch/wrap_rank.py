"""Becomes `python -m launch.wrap_rank`."""

import os
import sys

if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "launch.wrap_rank", *sys.argv[1:]])
