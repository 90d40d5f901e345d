"""The file of one rank: a few numbers (doubles) in shared memory."""

from __future__ import annotations

COUNT = 0
"""The number of signs."""
AT = 1
"""The time of the last one, by the monotonic clock of the machine."""
PID = 2
BUSY_SINCE = 3
"""The time since which the rank validates or saves; 0 if it does not."""
HAS_ENDED = 4
SIZE = 5
SIZE_BYTES = 8 * SIZE
SUFFIX = ".signs"
STACKS_SUFFIX = ".stacks"
