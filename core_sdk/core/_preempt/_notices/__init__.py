"""Notices that a cloud gives of its machine's end, for those who ask for them: each is a stop of all ranks.

Each node asks its own machine's metadata server, on its local chief, in a thread of its own: whatever the server does
or fails to do costs a warning, and the training nothing.
"""

from core_sdk.core._preempt._notices._clouds import Cloud, chosen_clouds

__all__ = ["Cloud", "chosen_clouds"]
