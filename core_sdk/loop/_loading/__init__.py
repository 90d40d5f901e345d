"""Data loaders that resume after a stop with the very next sample."""

from core_sdk.loop._loading._resumable import ResumableLoader, resumable
