"""Code directories: an experiment's scripts, packed when it is submitted and unpacked for each of its trials.

An archive is `<home>/code/<sha256>.tar.gz`. The name is the SHA-256 of the tar archive inside, which depends only on
the names, the contents, the executable bits and the links, so that equal directories are stored once.
"""

from core_sdk._execution.experiments.code._packing import PackedCode, pack, pack_entries
from core_sdk._execution.experiments.code._selection import IGNORE_FILES, MAX_SIZE_BYTES, Entry, select
from core_sdk._execution.experiments.code._unpacking import (
    STARTUP_HOOK,
    check_archive,
    has_startup_hook,
    remove_code,
    unpack,
    unpack_for_trial,
    with_startup_hook,
)
