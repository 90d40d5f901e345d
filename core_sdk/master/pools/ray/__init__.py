"""The slots of a Ray cluster's nodes.

Each attempt has an actor, which holds its CPUs or GPUs on the node that Ray has chosen, and starts the ordinary agent
there. Actors are detached: they outlive the master, and agents outlive the actors. They end with their node.

On a node that does not see the home an attempt records in a spool of the node's (`_spooled`).

A process beside the master is connected to Ray (`_driver`), since Ray ends a program whose cluster goes away. The pool
asks it for something several times a second, and hears what has happened.
"""

from __future__ import annotations

from core_sdk.master.pools.ray._pool import ClusterPool

__all__ = ["ClusterPool"]
