"""TensorBoard's event files, made from an attempt's journal and without TensorFlow.

In mode AUTO they are a mirror of the journal: a background thread reads what the attempt has recorded and writes it
again in TensorBoard's format. The training thread is not involved. If the attempt was killed before the mirror was
complete, `write_event_files` can complete it at any later time.

They are not written while reporting, because an event costs as much as the report itself, and a training should not
wait for a copy that can be made at any time.

What a script has written with a writer of its own is the other way round: its files are read, where they lie, for the
media in them (`ScriptFiles`). Their scalars are not read.
"""

from core_sdk.tensorboard._copy import copy_event_files
from core_sdk.tensorboard._event_file import write_event_files
from core_sdk.tensorboard._mirror import TensorboardMirror, TensorboardMode
from core_sdk.tensorboard._script_files import ScriptFiles, ScriptMedium
