"""Becomes `python -m launch.tensorflow`."""

import os
import sys

if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "launch.tensorflow", *sys.argv[1:]])
