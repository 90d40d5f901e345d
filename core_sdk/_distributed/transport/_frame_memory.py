"""The memory into which large frames are read."""

from __future__ import annotations

# Memory for larger frames is taken as their bytes come, and is not kept.
MAX_KEPT_FRAME_BYTES = 1 << 21
_MAX_KEPT_BYTES = 1 << 24


class FrameMemory:
    """Keeps the memory of large frames for the next ones, since the system clears new memory slower than it is filled.

    Connections that the same thread reads may share it.
    """

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size_bytes: int) -> bytearray:
        """Returns memory with any content: that of an earlier frame, unless somebody still reads it."""
        for index, memory in enumerate(self._kept):
            if size_bytes <= len(memory) <= 2 * size_bytes:
                try:
                    memory.append(0)  # refused while there are views
                except BufferError:
                    continue
                del self._kept[index], memory[size_bytes:]
                return memory
        return bytearray(size_bytes)

    def keep(self, memory: bytearray) -> None:
        """Keeps memory that may still be read. Forgets the oldest if that is too much."""
        if len(memory) <= MAX_KEPT_FRAME_BYTES:
            self._kept.append(memory)
            while sum(map(len, self._kept)) > _MAX_KEPT_BYTES:
                del self._kept[0]
