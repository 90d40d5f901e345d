"""Cables that take their time: each frame that enters at one end comes out at the other, later and in order.

    python -m hosts.cable SECONDS PID:DEVICE:PID:DEVICE …

The ends are TAP devices in the network namespaces of those processes. It runs until its standard input closes.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import selectors
import struct
import sys
import time

from hosts.namespaces import CLONE_NEWNET, enter

_TUNSETIFF = 0x400454CA
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000
_LARGEST_FRAME_BYTES = 65536


def main(latency_s: float, cables: list[str]) -> None:
    """Opens all ends, says `ready`, and carries frames."""
    other_ends: dict[int, int] = {}
    for cable in cables:
        pid, device, other_pid, other_device = cable.split(":")
        one, other = _open_end(int(pid), device), _open_end(int(other_pid), other_device)
        other_ends |= {one: other, other: one}
    print("ready", flush=True)
    _carry(latency_s, other_ends)


def _open_end(pid: int, device: str) -> int:
    enter(f"/proc/{pid}/ns/net", CLONE_NEWNET)
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _IFF_TAP | _IFF_NO_PI))
    return end


def _carry(latency_s: float, other_ends: dict[int, int]) -> None:
    # One queue is enough: all frames take equally long, so the first that came in is the first to come out.
    under_way: collections.deque[tuple[float, int, bytes]] = collections.deque()
    with selectors.DefaultSelector() as selector:
        for end in (*other_ends, sys.stdin.fileno()):
            selector.register(end, selectors.EVENT_READ)
        while True:
            ready = selector.select(max(0.0, under_way[0][0] - time.monotonic()) if under_way else None)
            for key, _ in ready:
                if key.fd not in other_ends:
                    return
                # A device that is down gives, and takes, nothing.
                with contextlib.suppress(OSError):
                    frame = os.read(key.fd, _LARGEST_FRAME_BYTES)
                    under_way.append((time.monotonic() + latency_s, other_ends[key.fd], frame))
            while under_way and under_way[0][0] <= time.monotonic():
                _, end, frame = under_way.popleft()
                with contextlib.suppress(OSError):
                    os.write(end, frame)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
