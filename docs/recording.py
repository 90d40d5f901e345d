"""Records a command in a terminal and writes what it shows as an animated SVG: by default the demo.

python docs/recording.py            # writes docs/demo.svg
python docs/recording.py out.svg -- core-sdk trial list
"""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import shlex
import socket
import struct
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = 100
ROWS = 30
FONT_SIZE = 14
CHAR_WIDTH = 8.4
LINE_HEIGHT = 19
MARGIN = 16
# A reader does not wait as long as a training takes, and wants to see the end before it begins again.
LONGEST_PAUSE_S = 0.7
LAST_PAUSE_S = 6.0

_FIXED_SPACE = "\u00a0"  # viewers fold other spaces
_ESCAPES_BUT_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]|\x1b\][^\x07]*\x07|\x1b[()][A-Z0-9]")


@dataclass(frozen=True)
class Line:
    """A line of the terminal, with its codes for colours, and when it was complete."""

    shown_at: float
    """Seconds since the command was started."""
    text: str


def main(arguments: Sequence[str]) -> int:
    path = Path(arguments[0]) if arguments else ROOT / "docs" / "demo.svg"
    command = list(arguments[2:]) or [sys.executable, str(ROOT / "examples" / "demo.py")]
    lines, status = record(command)
    private = {str(ROOT): "~/core-sdk", str(Path.home()): "~", socket.gethostname(): "laptop"}
    path.write_text(render([Line(line.shown_at, _without(line.text, private)) for line in lines]))
    print(f"{path}: {len(lines)} lines of `{shlex.join(command)}`")
    return status


def record(command: Sequence[str]) -> tuple[list[Line], int]:
    """Returns the lines that the command shows on a terminal, and its exit status."""
    begun_at, lines, text = time.monotonic(), list[Line](), ""
    process_id, terminal = pty.fork()
    if process_id == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(ROWS))
        os.execvp(command[0], list(command))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    for read in _chunks(terminal):
        print(read, end="", flush=True)
        *complete, text = (text + read).split("\n")
        shown_at = time.monotonic() - begun_at
        lines += [Line(shown_at, _last_state(line)) for line in complete]
    os.close(terminal)
    _, status = os.waitpid(process_id, 0)
    return lines, os.waitstatus_to_exitcode(status)


def render(lines: Sequence[Line]) -> str:
    """Returns an SVG whose text moves up as the lines appear, in a loop. Without animation it shows the end."""
    rows = [(line.shown_at, row) for line in lines for row in _wrapped(line.text)]
    times = _shortened([shown_at for shown_at, _ in rows])
    duration = (times[-1] if times else 0.0) + LAST_PAUSE_S
    offsets = [(ROWS - 1 - index) * LINE_HEIGHT for index in range(len(rows))]
    frames = dict(zip([f"{100 * at / duration:.3f}%" for at in times], offsets, strict=True))
    steps = "".join(f"{at}{{transform:translateY({offset}px)}}" for at, offset in frames.items())
    width, height = round(COLUMNS * CHAR_WIDTH + 2 * MARGIN), ROWS * LINE_HEIGHT + 2 * MARGIN
    end = offsets[-1] if offsets else 0
    body = "\n".join(element for index, (_, row) in enumerate(rows) for element in _text_elements(index, row))
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="{FONT_SIZE}">
<style>
text {{ font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace }}
.lines {{ transform: translateY({end}px); animation: lines {duration:.2f}s step-end infinite }}
@media (prefers-reduced-motion: reduce) {{ .lines {{ animation: none }} }}
@keyframes lines {{ 0%{{transform:translateY({ROWS * LINE_HEIGHT}px)}}{steps} }}
</style>
<rect width="{width}" height="{height}" rx="8" fill="{MONOKAI.background_color.hex}"/>
<svg x="{MARGIN}" y="{MARGIN}" width="{width - 2 * MARGIN}" height="{height - 2 * MARGIN}">
<g class="lines">
{body}
</g>
</svg>
</svg>
"""


def _chunks(terminal: int) -> Iterator[str]:
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError as error:
            if error.errno == errno.EIO:  # Linux says so when the last process has closed the terminal
                return
            raise
        if not read:
            return
        yield read.decode(errors="replace")


def _last_state(line: str) -> str:
    """Returns what is left of a line that was written several times, as progress bars are."""
    states = [state for state in _ESCAPES_BUT_COLOURS.sub("", line).split("\r") if state]
    return states[-1] if states else ""


def _without(text: str, private: dict[str, str]) -> str:
    """Names of the machine are replaced: the recording is for everybody."""
    for name, shown in private.items():
        text = text.replace(name, shown)
    return text


def _wrapped(text: str) -> list[Text]:
    (decoded,) = AnsiDecoder().decode(text or " ")
    if text.startswith(("$ ", "# ")):
        decoded.stylize("bold green" if text[0] == "$" else "cyan")
    return list(decoded.divide(range(COLUMNS, len(decoded.plain), COLUMNS)))


def _shortened(times: Sequence[float]) -> list[float]:
    shortened, last = [], 0.0
    for before, at in zip([0.0, *times], times, strict=False):
        last += min(at - before, LONGEST_PAUSE_S)
        shortened.append(last)
    return shortened


def _text_elements(row: int, text: Text) -> Iterator[str]:
    column = 0
    for segment in text.render(Console(color_system="truecolor")):
        if segment.text.strip():
            x, y = column * CHAR_WIDTH, (row + 0.75) * LINE_HEIGHT
            length = len(segment.text) * CHAR_WIDTH
            yield (
                f'<text x="{x:.1f}" y="{y:.1f}" textLength="{length:.1f}" {_attributes(segment.style)}>'
                f"{escape(segment.text).replace(' ', _FIXED_SPACE)}</text>"
            )
        column += len(segment.text.rstrip("\n"))


def _attributes(style: Style | None) -> str:
    colour = style.color.get_truecolor(MONOKAI) if style and style.color else MONOKAI.foreground_color
    weight = ' font-weight="bold"' if style and style.bold else ""
    opacity = ' opacity="0.6"' if style and style.dim else ""
    return f'fill="{colour.hex}"{weight}{opacity}'


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
