"""Runs the tests that touch torch with the oldest and the newest Python and torch that are promised.

python .ci/versions.py [PYTHON/TORCH …]

Each pair gets an environment below .venv/versions, which is kept. A torch with CUDA takes 5 GB and 10 minutes. A pair
whose interpreter is not installed is named, and left out. The exit status is 1 if a test has failed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAIRS = ("3.11/2.6.0", "3.13/2.13.0", "3.14/newest")
TESTS = ("launch", "distributed", "loop", "pytorch", "train", "sgd", "workers", "core", "integrations")
_LAST_LINE = re.compile(r"(\d+ (?:passed|failed|error).* in [\d.]+s.*)")


def main() -> None:
    rows = [(pair, result_of(*pair.split("/"))) for pair in sys.argv[1:] or PAIRS]
    print(f"\n{'Python':<8}{'torch':<10}tests")
    for pair, result in rows:
        python, torch = pair.split("/")
        print(f"{python:<8}{torch:<10}{result}")
    sys.exit(any("failed" in result or "error" in result for _, result in rows))


def result_of(python: str, torch: str) -> str:
    """Returns the last line of the tests' output."""
    program = shutil.which(f"python{python}")
    if program is None or subprocess.run([program, "-c", ""], capture_output=True).returncode:
        return f"NOT TESTED: there is no python{python} here"
    environment = ROOT / ".venv" / "versions" / f"{python}-{torch}"
    its_python = environment / "bin" / "python"
    if not its_python.exists():
        print(f"making {environment}", flush=True)
        subprocess.run([program, "-m", "venv", environment], check=True)
    wanted = "torch" if torch == "newest" else f"torch=={torch}"
    subprocess.run([its_python, "-m", "pip", "install", "-q", "-e", f"{ROOT}[dev]", wanted], check=True)
    paths = [str(ROOT / "tests" / name) for name in TESTS if (ROOT / "tests" / name).exists()]
    command = [its_python, "-m", "pytest", "-q", "-n", "6", "-m", "not slow and not integration", *paths]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    last = f"error: the tests did not run with {wanted} on Python {python}"
    for line in process.stdout or ():
        print(line, end="", flush=True)
        if found := _LAST_LINE.fullmatch(line.strip()):
            last = found[1]
    process.wait()
    return last


if __name__ == "__main__":
    main()
