"""Records of an attempt on a node that does not see the home.

The node has a spool: a separate home, under `spools/` of the node's own home, in which the attempt runs as in any other
home. The spool gets what the trial needs from the home, and what the attempt writes is brought back.

- `node`: functions that run on the node, in a process that outlives the worker.
- `receiver`: writes records from a spool into the home.
- `shipment`: brings an attempt's records home, and brings to the node what the attempt needs.

The reason for this design: a journal is only appended to, so that the size of the receiver's file is the
acknowledgement. A reader that continues at this size loses nothing and repeats nothing, whatever process dies. The
training writes to its own disk as always, and never waits. A checkpoint is brought before the record that names it.
"""
