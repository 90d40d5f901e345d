"""Looks for a user's regular expression in many texts.

One may take longer than anybody waits, and nothing stops it in its thread: it has a process of its own, whose time is
limited.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

_MOST_CPU_S = 2
_MOST_S = 30
_PROGRAM = f"""
import json, re, signal, sys
expression, texts = json.load(sys.stdin)
signal.setitimer(signal.ITIMER_VIRTUAL, {_MOST_CPU_S})  # its signal ends the process
try:
    search = re.compile(expression, re.IGNORECASE | re.MULTILINE).search
except (re.error, OverflowError, RecursionError) as error:
    answer = str(error)
else:
    answer = [index for index, text in enumerate(texts) if search(text)]
json.dump(answer, sys.stdout)
"""


def matching(expression: str, texts: Sequence[str]) -> list[int]:
    """Returns the places of the texts that have a match, in upper or lower case; ^ and $ are the ends of a line.

    Raises `ValueError` if it is no regular expression, and `TimeoutError` if it takes too long.
    """
    command = [sys.executable, "-ISW", "ignore", "-c", _PROGRAM]
    question = json.dumps([expression, texts]).encode()
    try:
        output = subprocess.run(command, input=question, capture_output=True, timeout=_MOST_S, check=True).stdout
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        raise TimeoutError(
            f"the search for /{expression}/ takes more than {_MOST_CPU_S} seconds, and was ended"
        ) from None
    answer: list[int] | str = json.loads(output)
    if isinstance(answer, str):
        raise ValueError(f"/{expression}/ is no regular expression: {answer}")
    return answer
