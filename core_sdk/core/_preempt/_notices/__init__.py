"""Notices that a cloud gives before it ends a machine; each is a stop of all ranks.

On each node a thread of the local chief asks the machine's metadata server. A failure of the server costs a warning,
and does not disturb the training.
"""

from core_sdk.core._preempt._notices._clouds import Cloud, chosen_clouds
