"""Becomes `python -m launch.torch_distributed`."""

import os
import sys

if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "launch.torch_distributed", *sys.argv[1:]])
