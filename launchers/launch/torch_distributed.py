"""`python -m launch.torch_distributed [TORCHRUN OVERRIDES --] SCRIPT…`: ranks that use `torch.distributed`.

Every option of torchrun may stand before the `--`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from launch._framework import Framework
from launch._launching import run


class TorchDistributed(Framework):
    module = "launch.torch_distributed"
    overridden = "torchrun"

    def torchrun_options(self, overrides: Sequence[str]) -> tuple[str, ...]:
        return tuple(overrides)


def main() -> NoReturn:
    run(TorchDistributed())


if __name__ == "__main__":
    main()
