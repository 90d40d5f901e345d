"""The names of other trackers, for scripts that were written for them."""
