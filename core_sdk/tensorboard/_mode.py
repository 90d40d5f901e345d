"""The two ways in which TensorBoard gets its files."""

from __future__ import annotations

import enum


class TensorboardMode(enum.Enum):
    """AUTO: event files follow the reports. MANUAL: the script writes its own and calls `upload_tensorboard_files`."""

    AUTO = "AUTO"
    MANUAL = "MANUAL"
