"""Small Python objects between the ranks of one trial, for coordination.

`DistributedContext` knows who is who and speaks through a `Channel`. In a trial of one rank that is a `SoloChannel`, a
full implementation of the same interface, so that one script runs on one rank or on many. Many ranks form a star around
their chief: `joining` connects them, `calls` makes the collective calls, `transport` carries frames between two ranks.
Each member has two connections to the chief. The calling thread itself reads and writes the first one, so that a
collective costs a few microseconds and no change of threads. A thread of the channel reads the second one, which
carries the messages that no call waits for: deaths, farewells, questions to a late rank, notices.
"""

from core_sdk._distributed._channel import Channel, Listener, SoloChannel
from core_sdk._distributed._context import DistributedContext, has_process_group
from core_sdk._distributed.transport._failure import RankFailure
