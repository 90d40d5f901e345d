"""Stopping a training on request: where requests come from, and how all ranks stop at the same call."""

from core_sdk.core._preempt._context import PreemptContext, PreemptMode, monotonic_deadline, tell_launcher
