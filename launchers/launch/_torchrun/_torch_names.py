"""What the launcher needs of torch beyond its documentation: only for `--numa-binding`, and only when that is given."""

from __future__ import annotations

from collections.abc import Sequence

from launch._command_line import UsageError


def bound_to_cores(command: Sequence[str], local_rank: int, mode: str) -> list[str]:
    """Returns a command that binds the rank to cores near its GPU, as `--numa-binding` asks. Raises `UsageError`."""
    import torch

    try:
        from torch.numa import binding

        wish = binding.NumaOptions(affinity_mode=binding.AffinityMode(mode))
        bind = binding._maybe_wrap_command_args_with_numa_binding
        return list(bind(tuple(command), gpu_index=local_rank, numa_options=wish))
    except Exception as error:  # torch raises AssertionError, KeyError and others, by what the node lacks
        raise UsageError(
            f"--numa-binding={mode} is not possible with torch {torch.__version__} on this node: {error}"
        ) from error
