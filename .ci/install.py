"""Installs packages with the pip of the environment whose python runs this, and says how far it is.

python .ci/install.py -e '.[dev]' -c constraints.txt
"""

from __future__ import annotations

import re
import site
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

_EVERY_S = 3


class Progress:
    """How far pip is, by what it says and by what it has installed."""

    def __init__(self) -> None:
        self.output: list[str] = []
        self._num_found = 0
        self._last = ""
        self._num_to_install = 0
        self._num_before = 0

    def read(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.output.append(line)
            self._read(line)

    def __str__(self) -> str:
        if self._num_to_install:
            return f"installing: {max(_num_installed() - self._num_before, 0)} of {self._num_to_install} packages"
        if self._num_found:
            return f"downloading: {self._num_found} packages so far, now {self._last}"
        return "asking which packages there are"

    def _read(self, line: str) -> None:
        if match := re.match(
            r" +(?:Downloading|Using cached) ([^-]+-[^-]+)\S* \((.+)\)|Processing \S*/([^-]+-[^-+]+)", line
        ):
            self._num_found += 1
            self._last = f"{match[1]} ({match[2]})" if match[1] else match[3]
        elif line.startswith("Installing collected packages: "):
            self._num_before = _num_installed()
            self._num_to_install = line.count(",") + 1


def main(arguments: list[str]) -> int:
    # Python compiles a module when it is first imported. To compile all of them takes longer than all else here.
    options = ["--disable-pip-version-check", "--progress-bar=off", "--no-compile"]
    command = [sys.executable, "-m", "pip", "install", *options, *arguments]
    began_at = time.monotonic()
    progress = Progress()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        reader = threading.Thread(target=progress.read, args=[pip.stdout or ()])
        reader.start()
        while reader.is_alive():
            reader.join(_EVERY_S)
            print(f"  {time.monotonic() - began_at:3.0f} s  {progress}", flush=True)
    if pip.returncode != 0:
        print("".join(progress.output), file=sys.stderr)
    return pip.returncode


def _num_installed() -> int:
    return sum(1 for folder in site.getsitepackages() for _ in Path(folder).glob("*.dist-info"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
