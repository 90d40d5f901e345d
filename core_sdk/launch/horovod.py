"""Becomes `python -m launch.horovod`."""

import os
import sys

if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "launch.horovod", *sys.argv[1:]])
