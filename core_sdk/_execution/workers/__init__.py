"""Worker groups: ranks that a Python program starts, calls, and starts again.

    with WorkerGroup(2) as workers:
        workers.init_torch()
        losses = workers.run(train, config)

A `WorkerGroup` gives calls to its workers and judges what comes back; an `Engine` starts the workers: `LocalEngine` on
this machine, `RayEngine` of `core_sdk._execution.workers.ray` on a Ray cluster.

Workers stay between calls, because a start costs a second of imports. A call is one request and one answer, so that one
thread of the program for each worker suffices, and nothing can deadlock. Calls run in the worker's main thread, where
scripts may handle signals; a thread of the worker answers calls that must not wait for those. The death of a worker
ends all workers, since a rank that waits for a dead one in a collective would hang; an exception ends none. Each worker
leads a session of its own, so that Ctrl-C reaches the program only.
"""

from __future__ import annotations

from core_sdk._execution.workers._call import Call
from core_sdk._execution.workers._choice import open_engine
from core_sdk._execution.workers._engine import Engine
from core_sdk._execution.workers._group import WorkerGroup
from core_sdk._execution.workers._messages import encode_request, named_as
from core_sdk._execution.workers._program import this_worker
from core_sdk._execution.workers.local import LocalEngine
