"""Rules that watch a metric of a training: pure functions of the reports, so that the same reports decide the same.

A `Guard` is what users write. A `MetricWatch` is fed with the reports of one attempt in the order of their records. It
finds trouble at most once for each guard, and says after which step it began: the newest checkpoint up to there holds
none of it.
"""

from core_sdk._ground.guards._guard import (
    Guard,
    checked_guards,
    parse_guard,
    place_of,
    values_of,
    words_of,
)
from core_sdk._ground.guards._watch import MetricWatch, Trouble
