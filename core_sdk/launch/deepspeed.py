"""Becomes `python -m launch.deepspeed`."""

import os
import sys

if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "launch.deepspeed", *sys.argv[1:]])
