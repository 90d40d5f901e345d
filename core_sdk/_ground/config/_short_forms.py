"""Reads values that have a short or an old form besides the complete one."""

from __future__ import annotations

import math
from collections import Counter
from typing import Annotated, Any, get_args

from msgspec import Meta

from core_sdk._ground.config._document import Path
from core_sdk._ground.config._reader import INVALID, Reader, ShortForm
from core_sdk._ground.config.experiment import (
    DEFAULT_LOG_POLICIES,
    EnvironmentVariables,
    LogPolicies,
    LogPolicy,
    StorageSpec,
    Variable,
)
from core_sdk._ground.config.hyperparameters import Const, Hyperparameter, HyperparameterSpace, Log
from core_sdk._ground.config.lengths import Length, Period, Unit
from core_sdk._ground.config.searchers import AsyncHalvingSearcher, Searcher, SingleSearcher
from core_sdk._ground.records import RETENTION_KEYS, STORAGE_KEYS, KeepEvery
from core_sdk._ground.sections import Section

HYPERPARAMETERS: dict[str, type[Section]] = {kind.__struct_config__.tag: kind for kind in get_args(Hyperparameter)}
SEARCHERS = {kind.__struct_config__.tag: kind for kind in get_args(Searcher)} | {"asha": AsyncHalvingSearcher}
OLD_SEARCHERS = dict.fromkeys(("adaptive", "adaptive_simple"), "adaptive_asha") | {
    "sync_halving": "asha",
    "pbt": "custom",
}


def _searcher(reader: Reader, value: Any, path: Path) -> Any:
    if not isinstance(value, dict):
        return reader.section(SingleSearcher, value, path)
    if successor := OLD_SEARCHERS.get(str(value.get("name"))):
        return reader.invalid((*path, "name"), f"is {value['name']!r}, which no longer exists; use {successor}")
    return reader.tagged(SEARCHERS, "name", value, path)


def _space(reader: Reader, value: Any, path: Path) -> Any:
    if not isinstance(value, dict):
        return reader.invalid(path, "must be a map of hyperparameters by name")
    members = {name: _member(reader, member, (*path, name)) for name, member in value.items()}
    return INVALID if INVALID in members.values() else HyperparameterSpace(members)


def _member(reader: Reader, value: Any, path: Path) -> Any:
    if not isinstance(value, dict) or not value:
        return Const(value)
    if "loguniform" in value:
        return _loguniform(reader, value, path)
    if "type" not in value:
        return _space(reader, value, path)
    member = reader.tagged(HYPERPARAMETERS, "type", value, path)
    # Exponents of learning rates are negative, and exponents of sizes are at most some tens.
    if isinstance(member, Log) and member.minval > 0 and (member.minval < 1 or member.base**member.maxval > 1e15):
        low, high = f"{member.minval:g}", f"{member.maxval:g}"
        reader.document.add_warning(
            path,
            f"has exponents as minval and maxval, and so values from {member.base**member.minval:g} to "
            f"{member.base**member.maxval:g}; for values from {low} to {high} write loguniform: [{low}, {high}]",
        )
    return member


def _loguniform(reader: Reader, value: dict[str, Any], path: Path) -> Any:
    ends, here = value["loguniform"], (*path, "loguniform")
    for key in value.keys() - {"loguniform", "count"}:
        reader.unknown((*path, key), ("loguniform", "count"))
    if not isinstance(ends, list) or len(ends) != 2:
        return reader.invalid(here, "must be a list of two numbers, such as [1e-5, 0.1]")
    numbers = [reader.read(_Positive, end, (*here, index)) for index, end in enumerate(ends)]
    if INVALID in numbers:
        return INVALID
    if numbers[0] >= numbers[1]:
        return reader.invalid(here, f"must have the smaller number first, and is {ends}")
    exponents = {"base": 10, "minval": math.log10(numbers[0]), "maxval": math.log10(numbers[1])}
    return reader.section(Log, exponents | {"count": value.get("count")}, path)


_Positive = Annotated[float, Meta(gt=0)]


def _length(kind: type[Length]) -> ShortForm:
    def read(reader: Reader, value: Any, path: Path) -> Any:
        unit = None
        if isinstance(value, dict):
            if len(value) != 1:
                return reader.invalid(path, f"must have one unit, such as {{epochs: 20}}, and has {len(value)}")
            ((unit, value),) = value.items()
            path = (*path, unit)
            if unit not in get_args(Unit):
                return reader.unknown(path, get_args(Unit))
        number = reader.read(Annotated[int, Meta(ge=kind.minimum)], value, path)
        return INVALID if number is INVALID else kind(number, unit)

    return read


def _variables(reader: Reader, value: Any, path: Path) -> Any:
    if isinstance(value, dict):
        # Old files call cuda `gpu`.
        return reader.section(
            EnvironmentVariables, {"cuda" if key == "gpu" else key: value[key] for key in value}, path
        )
    variables = reader.read(tuple[Variable, ...], value, path)
    return INVALID if variables is INVALID else EnvironmentVariables(variables, variables, variables)


def _storage(reader: Reader, value: Any, path: Path) -> Any:
    if not isinstance(value, dict):
        return reader.read(Annotated[str, Meta(min_length=1)], value, path)
    numbers = [
        reader.read(Annotated[int, Meta(ge=0)], value[key], (*path, key))
        for key in RETENTION_KEYS
        if key != "keep_every" and value.get(key) is not None
    ]
    if value.get("keep_every") is not None and (problem := KeepEvery.problem(value["keep_every"])):
        return reader.invalid((*path, "keep_every"), problem)
    if value.get("type") not in (None, *STORAGE_KEYS):
        return reader.invalid((*path, "type"), f"must be one of {', '.join(STORAGE_KEYS)}, and is {value['type']!r}")
    return INVALID if INVALID in numbers else {key: item for key, item in value.items() if item is not None}


def _log_policies(reader: Reader, value: Any, path: Path) -> Any:
    if not isinstance(value, list):
        return reader.invalid(path, "must be a list of policies")
    policies = [reader.section(LogPolicy, _renewed(item), (*path, index)) for index, item in enumerate(value)]
    if INVALID in policies:
        return INVALID
    for name, number in Counter(policy.name for policy in policies).items():
        if number > 1:
            return reader.invalid(path, f"has {number} policies of the name {name!r}")
    merged = {policy.name: policy for policy in (*DEFAULT_LOG_POLICIES, *policies)}
    return tuple(merged.values())


def _renewed(policy: Any) -> Any:
    """Returns the policy in the present form. In old files a policy has no name, and its action is a map."""
    if not isinstance(policy, dict):
        return policy
    action = policy.get("action")
    renewed = {"name": policy.get("pattern")} | policy
    return renewed | {"action": action.get("type")} if isinstance(action, dict) else renewed


SHORT_FORMS: dict[Any, ShortForm] = {
    Searcher: _searcher,
    HyperparameterSpace: _space,
    Length: _length(Length),
    Period: _length(Period),
    EnvironmentVariables: _variables,
    StorageSpec: _storage,
    LogPolicies: _log_policies,
}
