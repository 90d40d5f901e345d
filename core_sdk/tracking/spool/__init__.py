"""Records of an attempt on a node that does not see the home.

The node has a spool: a home of its own, under `spools/` of the node's own home, in which the attempt lives as in any
other. It is fitted out with what the trial needs from the home, and what the attempt writes is brought back.

- `node`: functions that run on the node, in a process that outlives the worker.
- `receiver`: writes into the home what comes from a spool.
- `shipment`: brings an attempt's records home, and to the node what the attempt needs.

Why it is so: a journal is only appended to, so that the receiver's file is itself the acknowledgement. Whoever asks
from its size on loses nothing and doubles nothing, whatever dies in between; the training writes to its disk as always,
and never waits. A checkpoint is brought before the record that names it.
"""
