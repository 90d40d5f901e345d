"""`python -m launch.torch_distributed [TORCHRUN OVERRIDES --] SCRIPT…`: ranks that use `torch.distributed`.

Every option of torchrun may stand before the `--`, and `--hostfile FILE`, which torchrun lacks. The `--` may be left
out: then the first word that is no option ends the options, as under torchrun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from core_sdk._ground.environment import torchrun_variables
from launch._command_line import Command, UsageError
from launch._framework import Framework, LaunchOptions
from launch._launcher import run
from launch._ssh._head import is_placed
from launch._ssh._hostfile import Host, SshLaunch, read_hostfile
from launch._torchrun._options import node_range, options_text, parse_options, split_hostfile, with_dashes


class TorchDistributed(Framework):
    module = "launch.torch_distributed"
    overridden = "torchrun, and --hostfile FILE: lines `NAME slots=N` of hosts to start on by ssh"

    def command(self, arguments: Sequence[str]) -> Command:
        return super().command(with_dashes(arguments))

    def plan(self, overrides: Sequence[str]) -> LaunchOptions:
        hostfile, options = split_hostfile(overrides)
        if hostfile is None:
            return LaunchOptions(options)
        hosts = read_hostfile(hostfile)
        ssh_launch = None if is_placed() else plan_ssh_launch(hosts, options)
        # With several hosts, a scheduler has placed this launcher: otherwise it would be a head.
        if len(hosts) != 1 or "nproc_per_node" in torchrun_variables():
            return LaunchOptions(options, ssh_launch)
        # An option that the user gave comes later, and so takes precedence.
        return LaunchOptions((f"--nproc-per-node={hosts[0].slots}", *options), ssh_launch)

    def options_text(self) -> str:
        return options_text()

    def variables(self, rank: Mapping[str, str]) -> Mapping[str, str]:
        return {"USE_TORCH_DISTRIBUTED": "True"}


def plan_ssh_launch(hosts: Sequence[Host], options: Sequence[str]) -> SshLaunch:
    """Plans a launch on as many of the hosts as torchrun's options ask for. Raises `UsageError`."""
    given = parse_options(options).given
    if "node_rank" in given or given.get("standalone"):
        raise UsageError("--node-rank and --standalone are for launchers that are started by hand on each node")
    least, most = node_range(given.get("nnodes", str(len(hosts))))
    if most > len(hosts):
        raise UsageError(f"--nnodes={given['nnodes']} needs {most} hosts, and the hostfile names {len(hosts)}")
    # Without restarts the loss of a node ends the training.
    is_elastic = least < most and given.get("max_restarts", 0) > 0
    return SshLaunch(tuple(hosts[:most]), overrides=tuple(options), min_hosts=least if is_elastic else None)


def main() -> NoReturn:
    run(TorchDistributed())


if __name__ == "__main__":
    main()
