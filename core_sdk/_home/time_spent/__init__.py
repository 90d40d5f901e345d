"""Where the time of a trial went: a pure function of its records, in milliseconds that add up to its wall time.

`docs/time.md` defines the phases. A clock counts one attempt while its journal is read, so that the index keeps a few
numbers for each attempt instead of the times of all reports. `trial_time` puts the attempts of a trial together.
"""

from core_sdk._home.time_spent._attempt import AttemptClock, TimeMark, milliseconds
from core_sdk._home.time_spent._interval import best_interval, cost_share
from core_sdk._home.time_spent._trial import PHASES, AttemptSpan, Gap, TrialTime, trial_time
