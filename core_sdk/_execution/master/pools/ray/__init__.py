"""The slots of a Ray cluster's nodes.

Each attempt has an actor, which holds its CPUs or GPUs on the node that Ray has chosen, and starts the ordinary agent
there. Actors are detached, so that they outlive the master. Agents outlive the actors, and end with their node.

On a node that does not see the home, an attempt writes its records into a spool on the node (`_spooled`).

Another process than the master is connected to Ray (`_driver`), since Ray ends a program whose cluster goes away. The
pool sends it requests several times a second, and gets the news as the answer.
"""

from __future__ import annotations

from core_sdk._execution.master.pools.ray._pool import ClusterPool
