"""The errors by wandb's names."""

from __future__ import annotations

from core_sdk.errors import CoreSDKError

Error = CommError = CoreSDKError
"""Any error of Core SDK."""


class UsageError(CoreSDKError):
    """A call that no run can take: before `init()`, after `finish()`, or with what contradicts an earlier call."""
