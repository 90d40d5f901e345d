"""Manages one machine: processes that leave no orphans, and slots that are given to one attempt at a time."""
