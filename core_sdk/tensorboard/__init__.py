"""TensorBoard's event files, made from an attempt's journal and without TensorFlow.

In mode AUTO they are a mirror of the journal: a background thread reads what the attempt has recorded and writes it
once more, in TensorBoard's format. The training thread has no part in it. What the mirror lacks at the end of an
attempt, because it ended in a hurry or by a kill, `write_event_files` makes good at any later time.

Why not write them while reporting: an event costs as much as a report itself, and its file is a copy that can be made
again, which no training should have to wait for.
"""

from core_sdk.tensorboard._copy import copy_event_files
from core_sdk.tensorboard._event_file import write_event_files
from core_sdk.tensorboard._mirror import TensorboardMirror
from core_sdk.tensorboard._mode import TensorboardMode

__all__ = ["TensorboardMirror", "TensorboardMode", "copy_event_files", "write_event_files"]
