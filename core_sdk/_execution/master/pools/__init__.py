"""Resource pools: the slots that attempts run on, of this machine or of a cluster.

A `ResourcePool` begins attempts, and finds those that an earlier master has begun. The master decides which trial gets
slots next. An attempt is a `Claim` first, and an `Execution` once it is recorded.
"""

from __future__ import annotations

from core_sdk._execution.master.pools._machine_pool import MachinePool
from core_sdk._execution.master.pools._pool import (
    Begun,
    Claim,
    Execution,
    MakeClaim,
    ResourcePool,
    SlotsTaken,
    split_nodes,
)
