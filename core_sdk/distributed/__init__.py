"""Small Python objects between the ranks of one trial, for coordination.

`DistributedContext` knows who is who and speaks through a `Channel`. A trial of one rank speaks to itself through
`SoloChannel`, a whole implementation of the seam: the same script runs on one rank or on many.
"""

from core_sdk.distributed._channel import Channel, SoloChannel
from core_sdk.distributed._context import DistributedContext

__all__ = ["Channel", "DistributedContext", "SoloChannel"]
