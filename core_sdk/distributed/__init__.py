"""Small Python objects between the ranks of one trial, for coordination.

`DistributedContext` knows who is who and speaks through a `Channel`. A trial of one rank speaks to itself through
`SoloChannel`, a whole implementation of the seam: the same script runs on one rank or on many. Many form a star around
their chief (`_star`, `_chief`, `_member`): each member has one connection for the collectives, on which the calling
thread itself reads and writes, so that a call costs a few microseconds and no change of threads; and a second one for
all that no call waits for (`_control`): deaths, farewells, questions to a late rank, notices.
"""

from core_sdk.distributed._channel import Channel, Listener, SoloChannel
from core_sdk.distributed._context import DistributedContext, has_process_group
from core_sdk.distributed._encoding import Failure

__all__ = ["Channel", "DistributedContext", "Failure", "Listener", "SoloChannel", "has_process_group"]
