"""The names of trials to which nobody has given one."""

from __future__ import annotations

import zlib
from functools import cache

_ADJECTIVES = """
amber bold brave bright brisk calm clear clever copper coral cosmic crisp curious daring eager early fair fleet
gentle golden grand green happy hidden humble jolly keen kind lively lucky merry mild misty modest noble patient
placid polite proud quick quiet rapid rosy royal ruby rustic sandy serene silent silver sleek smooth snowy solar
steady sunny swift tidy velvet vivid warm wild wise witty
"""
_NOUNS = """
acorn arrow badger bay beacon birch brook canyon cedar cloud comet condor creek dawn delta dune eagle falcon fern
finch fjord forest fox garden glacier grove harbor hawk heron hill island jaguar lagoon lake lark lynx maple
meadow moon moss oak ocean orchid otter owl panda peak pine planet pond prairie puma raven reef ridge river
robin sparrow spruce star summit tiger valley willow
"""


def generated_name(trial_id: int, created: float) -> str:
    """Returns the name of a trial that was given none, such as "calm-otter-12". It never changes."""
    adjectives, nouns = _words()
    number, noun = divmod(zlib.crc32(f"{trial_id} {created!r}".encode()), len(nouns))
    return f"{adjectives[number % len(adjectives)]}-{nouns[noun]}-{trial_id}"


@cache
def _words() -> tuple[list[str], list[str]]:
    return _ADJECTIVES.split(), _NOUNS.split()
