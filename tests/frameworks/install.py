"""Installs a framework into an environment of its own, on top of the one whose python runs this.

    PYTHONPATH=tests python -m frameworks.install deepspeed .venv/deepspeed

What pip and the compilers say goes into `install.log` there. Ends with 1 if something fails, or takes too long.
"""

from __future__ import annotations

import os
import site
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from frameworks.build_horovod import BuildError, horovod_wheel
from frameworks.environments import Framework, FrameworkEnvironment, cache

DEEPSPEED = "deepspeed==0.19.8"
_CALLBACKS = ["lightning==2.6.6", "transformers==5.23.0", "accelerate==1.15.0"]
RAY = "ray==2.60.0"
_CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"
_TIMEOUT_S = 600

# What it compiles on CPUs when it is first used. Without a compiler it does without.
_COMPILE = "from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder as Builder; Builder().load()"


def main(name: Framework, directory: Path) -> int:
    environment = FrameworkEnvironment(name, directory.absolute())
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "install.log").open("w") as log:
        try:
            _INSTALLERS[name](environment, log)
        except (OSError, BuildError, subprocess.SubprocessError) as error:
            log.write(f"{type(error).__name__}: {error}\n")
            return 1
    return 0


def install_deepspeed(environment: FrameworkEnvironment, log: TextIO) -> None:
    _make_layer(environment.directory)
    _pip(environment, log, [DEEPSPEED, "-c", str(_CONSTRAINTS)])
    done = _run([str(environment.python), "-c", _COMPILE], log, environment.variables(), check=False)
    if done != 0:
        log.write("DeepSpeed's extension is not compiled: every start of it will try again\n")


def install_horovod(environment: FrameworkEnvironment, log: TextIO) -> None:
    wheel = horovod_wheel(cache(), log)
    _make_layer(environment.directory)
    _pip(environment, log, [str(wheel), "-c", str(_CONSTRAINTS)])


def install_callbacks(environment: FrameworkEnvironment, log: TextIO) -> None:
    _make_layer(environment.directory)
    _pip(environment, log, [*_CALLBACKS, "-c", str(_CONSTRAINTS)])


def install_ray(environment: FrameworkEnvironment, log: TextIO) -> None:
    _make_layer(environment.directory)
    _pip(environment, log, [RAY, "-c", str(_CONSTRAINTS)])


_INSTALLERS: Mapping[Framework, Callable[[FrameworkEnvironment, TextIO], None]] = {
    "deepspeed": install_deepspeed,
    "horovod": install_horovod,
    "callbacks": install_callbacks,
    "ray": install_ray,
}


def _make_layer(directory: Path) -> None:
    """Makes an environment that finds all packages of this one, torch and pip among them, behind its own."""
    venv.create(directory, symlinks=True, with_pip=False)
    own = next(directory.glob("lib/python*/site-packages"))
    # Not the bare path, in which the files of editable installs would not be looked for.
    lines = [f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages()]
    (own / "layer.pth").write_text("".join(lines))


def _pip(environment: FrameworkEnvironment, log: TextIO, arguments: Sequence[str]) -> None:
    options = ["--quiet", "--disable-pip-version-check", "--no-build-isolation"]
    _run([str(environment.python), "-m", "pip", "install", *options, *arguments], log, environment.variables())


def _run(command: Sequence[str], log: TextIO, variables: Mapping[str, str], *, check: bool = True) -> int:
    log.write(f"$ {' '.join(command)}\n")
    log.flush()
    done = subprocess.run(
        command,
        stdout=log,
        stderr=log,
        stdin=subprocess.DEVNULL,
        env=os.environ | variables,
        check=check,
        timeout=_TIMEOUT_S,
    )
    return done.returncode


if __name__ == "__main__":
    chosen = next(name for name in _INSTALLERS if name == sys.argv[1])
    sys.exit(main(chosen, Path(sys.argv[2])))
