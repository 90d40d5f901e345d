"""Commands of ours that end with the command of a training, after `--`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from core_sdk._interfaces.signatures import FunctionCommand

_OF_LAUNCHERS = ("--nproc", "--nnodes", "--num_processes", "--num-processes")


class CommandAfterDashes(FunctionCommand):
    """Requires `--` before the last argument, a command: without it our options could not be told from its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = args[: args.index("--")] if "--" in args else args
        if any(word.startswith(_OF_LAUNCHERS) for word in own):
            ranks = "python -m launch.torch_distributed --nproc_per_node 2 -- python train.py"
            ctx.fail(f"a launcher starts several ranks: {ctx.command_path} -- {ranks}")
        if "--" not in args and (begin := self._begin_of_command(ctx, args)) is not None:
            command = args[begin:] or ["python", "train.py"]
            meant = shlex.join([*args[:begin], "--", *command])
            ctx.fail(f"put `--` before the command: {ctx.command_path} {meant}")
        begin = self._begin_of_command(ctx, own)
        if begin is not None and begin < len(own):
            ctx.fail(f"{own[begin]!r} stands before `--`, and no option takes it: an option takes one value each time")
        return super().parse_args(ctx, args)

    def _begin_of_command(self, ctx: Any, args: Sequence[str]) -> int | None:
        """Returns the place at which a command without `--` begins, or should.

        Returns None if there is none, or if an unknown option comes first, which the library will name.
        """
        params: list[Any] = self.get_params(ctx)
        options = {name: each for each in params for name in (*each.opts, *each.secondary_opts) if name[0] == "-"}
        *own, command = (each for each in params if each.param_type_name == "argument")
        num_own, has_value = len(own), False
        for place, word in enumerate(args):
            if has_value:
                has_value = False
            elif word.startswith("-"):
                name, equals, _ = word.partition("=")
                if name not in options or name in ctx.help_option_names:
                    return None
                has_value = not equals and not options[name].is_flag
            elif num_own == 0:
                return place
            else:
                num_own -= 1
        return len(args) if command.required else None
