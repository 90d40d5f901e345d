"""`python -m launch.torch_distributed [TORCHRUN OVERRIDES --] SCRIPT…`: ranks that use `torch.distributed`.

Every option of torchrun may stand before the `--`, and `--hostfile FILE`, which torchrun lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from launch._framework import Framework
from launch._launcher import run
from launch._ssh._hostfile import Spread, read_hostfile
from launch._torchrun._hostfile_option import split_hostfile, spread_over, with_slots


class TorchDistributed(Framework):
    module = "launch.torch_distributed"
    overridden = "torchrun, and --hostfile FILE: lines `NAME slots=N` of hosts to start on by ssh"

    def torchrun_options(self, overrides: Sequence[str]) -> tuple[str, ...]:
        hostfile, options = split_hostfile(overrides)
        hosts = () if hostfile is None else read_hostfile(hostfile)
        # More hosts are a scheduler's matter: had nothing placed this launcher, it would have spread.
        return with_slots(options, hosts[0]) if len(hosts) == 1 else options

    def variables(self, rank: Mapping[str, str]) -> Mapping[str, str]:
        return {"USE_TORCH_DISTRIBUTED": "True"}

    def spread(self, overrides: Sequence[str]) -> Spread | None:
        hostfile, options = split_hostfile(overrides)
        return None if hostfile is None else spread_over(read_hostfile(hostfile), options)


def main() -> NoReturn:
    run(TorchDistributed())


if __name__ == "__main__":
    main()
