"""The collective calls of a connected group, and how a rank that dies, leaves or is late fails them on all ranks."""
