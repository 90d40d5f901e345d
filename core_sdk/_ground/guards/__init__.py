"""Rules that watch a metric of a training: pure functions of the reports, so that the same reports decide the same.

A `MetricWatch` is fed with the reports of one attempt in the order of their records. It finds trouble at most once for
each guard, and says after which step it began: the newest checkpoint up to there holds none of it.
"""

from core_sdk._ground.guards._rules import AboveMedian, Bound, NotBetter, NotFinite, RobustScore, Rule
from core_sdk._ground.guards._watch import Guard, MetricWatch, Trouble, newest_before
