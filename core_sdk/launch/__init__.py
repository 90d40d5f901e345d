"""The launchers under the name that a script for Determined gets when it is renamed: `-m core_sdk.launch.NAME`."""

from importlib.util import find_spec

# The modules of this package are the modules of `launch`, which `core_sdk` does not import.
_found = find_spec("launch")
__path__ = [] if _found is None else [*(_found.submodule_search_locations or [])]
