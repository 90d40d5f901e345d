"""The terminal of a command whose user watches it on a terminal."""

from __future__ import annotations

import os
import select
import termios


class Terminal:
    """A pseudo-terminal: the command has one end, `device`, and this process the other, `controller`."""

    def __init__(self, num_rows: int, num_columns: int) -> None:
        self.controller, self.device = os.openpty()
        self.resize(num_rows, num_columns)
        attributes = termios.tcgetattr(self.device)
        # The user's own terminal does both: it shows what is typed, and begins each line at the left.
        attributes[1] &= ~termios.ONLCR
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(self.device, termios.TCSANOW, attributes)

    def resize(self, num_rows: int, num_columns: int) -> None:
        """Changes the size, of which the kernel tells the command by SIGWINCH."""
        termios.tcsetwinsize(self.controller, (num_rows, num_columns))

    def type(self, text: bytes) -> None:
        """Sends input to the command, or drops it if the terminal is full, since signals must not wait for it."""
        if select.select([], [self.controller], [], 0)[1]:
            os.write(self.controller, text)
