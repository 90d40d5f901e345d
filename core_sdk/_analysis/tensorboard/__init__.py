"""TensorBoard: event files of what trials have recorded, and the media in event files that scripts write themselves.

Event files are made when somebody wants to see them, since the journal has everything: an event costs as much as the
report itself, and no training should pay for it. Scripts' own files are read where they lie, for their media only.

The messages come from the package tensorboard. The frames around them are our own: its checksum is computed in
Python, at 8 MB/s, and holds up all threads of a server meanwhile.
"""

import importlib.util

from core_sdk.errors import MissingDependencyError

if importlib.util.find_spec("tensorboard") is None:
    raise MissingDependencyError("tensorboard", extra="tensorboard", purpose="event files")
