"""The agent: the parent of one attempt on one node. It outlives the process that started it.

An agent is a process of its own in a session of its own. It starts the attempt's command, keeps its output in the log,
holds the attempt's lock from before the start until the end is recorded, and records the exit. When the command has
ended, or when the agent itself is killed, what the command has left behind is ended, in whatever session. All signals
are blocked in it, since Slurm and service managers send theirs to every process: what is meant for the command comes
over its socket.

`starting` is for programs that start agents: `core-sdk run`, `trial resume`, `trial continue`, and the master.
"""
