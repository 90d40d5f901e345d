"""Signs of life: each rank says in a small shared file that it goes on, and the agent beside it looks at them.

A rank gives a sign at each step (`should_preempt()`) and each batch of its loader. That is two writes into shared
memory, and no call of the system.
"""

from core_sdk._ground.signs._collectives import LastCollective, collective_calls
from core_sdk._ground.signs._giving import SIGNAL, SignsOfLife
from core_sdk._ground.signs._pulse import Pulse, StallBounds
from core_sdk._ground.signs._reading import RankSigns, read_signs
