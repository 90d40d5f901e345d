"""Loaders of data that go on after a stop with the very next sample."""

from core_sdk.loop.loading._resumable import ResumableLoader, resumable
