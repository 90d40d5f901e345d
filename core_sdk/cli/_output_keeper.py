"""Copies its standard input to the end of a file, whatever becomes of anybody else.

    python _output_keeper.py LOG

It stands between a script and its log, in a session of its own, so that neither a full disk nor the death of the
`core-sdk run` that started both reaches the script: what the disk refuses is dropped, counted and said when there is
room again. It is started with every signal blocked: Slurm, service managers and people send a stop to all processes of
a training, and the script's last words come after it. Run by file path, with nothing but the standard library, since it
lives as long as the training.
"""

from __future__ import annotations

import os
import sys

_CHUNK_BYTES = 1 << 16
_STDIN = 0


def keep_output(source: int, log: int) -> None:
    """Returns at the end of `source`; never raises for what `log` refuses."""
    num_dropped = 0
    while chunk := os.read(source, _CHUNK_BYTES):
        if num_dropped:
            note = b"\n[core-sdk] %d bytes of output were dropped: the log could not be written\n" % num_dropped
            if _write(log, note) < len(note):
                num_dropped += len(chunk)
                continue
            num_dropped = 0
        num_dropped += len(chunk) - _write(log, chunk)


def _write(log: int, content: bytes) -> int:
    """How many bytes were written before the disk refused."""
    num_written = 0
    while num_written < len(content):
        try:
            num_written += os.write(log, content[num_written:])
        except OSError:
            break
    return num_written


if __name__ == "__main__":
    keep_output(_STDIN, os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
