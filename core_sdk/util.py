"""The one function that scripts take from the predecessor's module of this name."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any


def merge_dicts(base_dict: Mapping[Any, Any], source_dict: Mapping[Any, Any]) -> dict[Any, Any]:
    """Returns a copy of `base_dict` with the values of `source_dict`; dicts in both are merged in the same way."""
    merged = {**copy.deepcopy(dict(base_dict)), **source_dict}
    for name in base_dict.keys() & source_dict.keys():
        if isinstance(base_dict[name], Mapping) and isinstance(source_dict[name], Mapping):
            merged[name] = merge_dicts(base_dict[name], source_dict[name])
    return merged
