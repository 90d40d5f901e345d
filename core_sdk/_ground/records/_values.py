"""Converts values to JSON and back exactly, although JSON has no NaN, no infinities and no tuples.

A metric that is not finite is written as the string "NaN", "Infinity" or "-Infinity" (a metric is never a string
otherwise). A NaN whose 64 bits differ from `math.nan` is followed by them: "NaN:fff8000000000000". In free-form
values (hyperparameters, metadata) such a number becomes `{"$float": "NaN"}`, and in reports a file of media becomes
`{"$media": {…}}`.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import re
import struct
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, SupportsIndex

import msgspec

from core_sdk._ground.records._media import MEDIA_TAG, Media, media_from_json, media_to_json
from core_sdk.errors import InvalidNameError

Metric = int | float

Source = int | str
"""The keeper of a journal of an attempt: a rank, or a writer, which is no rank, by its name."""

WRITER_NAME = "[A-Za-z][A-Za-z0-9_-]{0,63}"
"""The names of writers, which files are called by, as a regular expression."""
_ALL = "all"
"""It stands for all ranks and writers, so that no writer is called so."""

MAX_NAME_BYTES = 1024
MAX_INT = 2**63
MAX_SEED = 2**31 - 1
MAX_DEPTH = 100
"""The largest depth of lists and mappings in a free-form value. Python itself fails at a few hundred levels."""

Int64 = Annotated[int, msgspec.Meta(ge=-MAX_INT, le=MAX_INT - 1)]
"""An integer that a database can store."""

Time = Annotated[float, msgspec.Meta(gt=-(2.0**40), lt=2.0**40)]
"""Seconds since the Unix epoch. A number beyond 34,000 years means damage."""


Duration = Annotated[float, msgspec.Meta(ge=0, lt=2.0**40)]
"""Seconds."""


class Line(msgspec.Struct, tag_field="type", kw_only=True, omit_defaults=True, gc=False):
    """The base of the lines of all journals."""

    time: Time
    """The time by the writer's clock. Records are ordered by their lines, never by their times."""


_FLOAT_TAG = "$float"
_RESERVED = frozenset({_FLOAT_TAG, MEDIA_TAG})
_NONFINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


_NAN_BITS = re.compile(r"NaN:([0-9a-f]{16})")


def nonfinite_to_text(value: Metric) -> Metric | str:
    """Returns infinities and NaN as text, all NaNs alike, and other numbers unchanged."""
    if isinstance(value, int) or math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def format_number(value: Any) -> str:
    """Returns a float with six significant digits, and an integer with all of them."""
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else str(nonfinite_to_text(value))
    return str(value)


def number_to_json(value: Metric) -> Metric | str:
    """Returns infinities and NaN as text that keeps the bits of a NaN, and other numbers unchanged."""
    text = nonfinite_to_text(value)
    if text != "NaN" or _bits(value) == _bits(math.nan):
        return text
    return f"NaN:{_bits(value)}"


def number_from_json(text: object) -> float:
    """Returns the number for a text that `number_to_json` has returned. Raises `ValueError` for other text."""
    if isinstance(text, str):
        if text in _NONFINITE:
            return _NONFINITE[text]
        if (match := _NAN_BITS.fullmatch(text)) is not None:
            (value,) = struct.unpack(">d", bytes.fromhex(match[1]))
            if math.isnan(value):
                return float(value)
    raise ValueError(f"{text!r} is not a number")


def metrics_from_json(metrics: Mapping[str, Metric | str]) -> dict[str, Metric]:
    """Returns a report's metrics as numbers, like `number_from_json`. Raises `ValueError` for any other text."""
    return {name: number_from_json(value) if isinstance(value, str) else value for name, value in metrics.items()}


def _bits(value: float) -> str:
    return struct.pack(">d", value).hex()


def to_json(value: Any, where: str, media: list[tuple[Media, dict[str, Any]]] | None = None) -> Any:
    """Returns a copy of a free-form value that JSON keeps exactly. `where` names it in errors.

    Media are accepted if there is a list for them, to which each is added with the JSON that stands for it.

    Accepts None, bool, int, float, str, and lists, tuples and string-keyed mappings of them; numpy scalars and
    0-dimensional tensors become Python numbers; a tuple becomes a list. Raises `TypeError` naming the place of
    anything else, and of text that is not valid Unicode, and `ValueError` for more than `MAX_DEPTH` levels.
    """
    return _to_json(value, where, 0, media)


def _to_json(value: Any, where: str, depth: int, media: list[tuple[Media, dict[str, Any]]] | None = None) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError(f"{where.partition('[')[0]} is nested more than {MAX_DEPTH} levels deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, int):
        if not -MAX_INT <= value <= MAX_INT:
            raise TypeError(f"{where} is {value}, which is beyond 64 bits")
        return int(value)
    if isinstance(value, float):
        spelled = number_to_json(float(value))
        return {_FLOAT_TAG: spelled} if isinstance(spelled, str) else spelled
    if isinstance(value, Mapping):
        return {_key(key, where): _to_json(item, f"{where}[{key!r}]", depth + 1, media) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(item, f"{where}[{index}]", depth + 1, media) for index, item in enumerate(value)]
    if media is not None and isinstance(value, Media):
        named = media_to_json(value.file)
        media.append((value, named))
        return named
    try:
        held = scalar(value)
    except TypeError as error:
        raise TypeError(f"{where} {error}, which JSON cannot keep") from error
    return _to_json(held, where, depth)


def to_json_or_text(value: Any, where: str, most_values: int | None = None) -> tuple[Any, list[str]]:
    """Converts a value like `to_json`, but with text in place of values and numeric keys that JSON cannot keep.

    Objects that hold fields by name become mappings: dataclasses, namespaces of argparse, and objects of attrs,
    pydantic and OmegaConf. Also returns the place and the type of each value and key that was replaced.

    With `most_values`, of which a text counts one for each 100 characters, a text in place of a value below the first
    level says how long it is, if it has more than a tenth of them, or more than are left. Raises `ValueError` for more
    on the first level.
    """
    replaced: list[str] = []
    num_left = most_values or 0

    def length_if_too_long(value: Any, where: str, depth: int) -> str | None:
        nonlocal num_left
        if most_values is None or not isinstance(value, (str, Mapping, list, tuple)):
            return None
        is_text = isinstance(value, str)
        num_values = len(value) // 100 if is_text else len(value)
        if num_values <= (min(num_left, most_values // 10) if depth else num_left):
            num_left -= num_values
            return None
        if depth == 0:
            raise ValueError(f"{where} has {len(value):,} names; at most {most_values:,} are recorded")
        length = f"a {type(value).__name__} of {len(value):,} {'characters' if is_text else 'items'}"
        replaced.append(f"{where}, {length}")
        return length

    def text_key(key: object, where: str) -> str:
        if isinstance(key, (int, float)):
            replaced.append(f"{where}'s key {key!r}, a {type(key).__name__}")
            key = str(key)
        return _key(key, where)

    def replace(value: Any, where: str, depth: int) -> Any:
        value = _with_fields_opened(value)
        if (length := length_if_too_long(value, where, depth)) is not None:
            return length
        if depth <= MAX_DEPTH and isinstance(value, Mapping):
            return {text_key(key, where): replace(item, f"{where}[{key!r}]", depth + 1) for key, item in value.items()}
        if depth <= MAX_DEPTH and isinstance(value, (list, tuple)):
            return [replace(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
        try:
            return _to_json(value, where, depth)
        except TypeError:
            if isinstance(value, (str, int)):
                raise
            replaced.append(f"{where}, a {type(value).__name__}")
            return _text(_spelled(value), where)

    return replace(value, where, 0), replaced


def _with_fields_opened(value: Any) -> Any:
    """Returns the fields of an object that holds them by name, and the items of a sequence; others unchanged."""
    if isinstance(value, (type, str, bytes)):
        return value
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    argparse = sys.modules.get("argparse")  # slow to import; loaded already if it is in use
    if isinstance(value, types.SimpleNamespace) or (argparse is not None and isinstance(value, argparse.Namespace)):
        return vars(value)
    if hasattr(type(value), "__attrs_attrs__"):
        return {field.name: getattr(value, field.name) for field in type(value).__attrs_attrs__}
    if callable(dump := getattr(value, "model_dump", None)):  # pydantic
        return dump()
    return list(value) if isinstance(value, Sequence) else value


def _spelled(value: Any) -> str:
    """Returns the text of a value. That of a set is sorted, since the order of a set differs between processes."""
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(str, value)))}}}"
    return str(value)


def scalar(value: Any) -> int | float | str:
    """Returns the value of a numpy scalar, or of a 0-dimensional array or tensor.

    Raises `TypeError`, which says what `value` is, for anything else.
    """
    kind = type(value).__name__
    shape = getattr(value, "shape", None)
    if getattr(value, "ndim", None) != 0 or not callable(getattr(value, "item", None)):
        raise TypeError(f"is a {kind}{f' of shape {tuple(shape)}' if shape else ''}")
    if getattr(getattr(value, "dtype", None), "kind", None) in ("m", "M"):
        raise TypeError(f"is a {kind}, a time")
    if getattr(value, "mask", None) is not None and bool(value.mask):
        raise TypeError("is a masked value")
    try:
        item = value.item()
    except Exception as error:
        raise TypeError(f"is a {kind} that has no value ({error})") from error
    if not isinstance(item, (int, float, str)):
        raise TypeError(f"is a {kind}")
    return item


def number_of(value: Any) -> Metric | None:
    """Returns the number that a value is, or that an array or a tensor with one element holds; None for others."""
    try:
        held = value.item() if hasattr(value, "item") else value
    except (TypeError, ValueError, RuntimeError):
        return None
    if isinstance(held, bool):
        return int(held)
    return held if isinstance(held, int | float) else None


def from_json(value: Any) -> Any:
    """Returns the value from which `to_json` made this one. Raises `ValueError` for what it does not make."""
    return _from_json(value, 0)


def is_tagged(value: Mapping[str, Any]) -> bool:
    """Returns whether the mapping is one that `to_json` has put in the place of a number that is not finite."""
    return value.keys() == {_FLOAT_TAG}


def _from_json(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        if is_tagged(value):
            return number_from_json(value[_FLOAT_TAG])
        if (file := media_from_json(value)) is not None:
            return file
        return {key: _from_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_from_json(item, depth + 1) for item in value]
    return value


def _key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{where} has the key {key!r}, a {type(key).__name__}; keys must be strings")
    if key in _RESERVED:
        raise TypeError(f"{where} has the key {key!r}, which is reserved")
    return _text(key, f"{where}'s key")


def check_text(what: str, text: object) -> str:
    """Returns `text` as a plain string. Raises `TypeError` naming `what` if it is not valid Unicode."""
    return _text(str(text), what)


def _text(value: str, where: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise TypeError(f"{where} is {value!r}, which is not valid Unicode") from error
    return str.__str__(value)  # `str(value)` of a member of an Enum is its name


def in_order(source: Source) -> tuple[bool, Source]:
    """Returns a key that sorts ranks by number, and behind them writers by name."""
    return isinstance(source, str), source


def check_writer_name(name: Any) -> str:
    """Returns the name. Raises `ValueError` for one that a writer cannot have."""
    if not isinstance(name, str) or not re.fullmatch(WRITER_NAME, name) or name == _ALL:
        raise ValueError(
            f"writer is {name!r}; it must be a name of at most 64 letters, digits, '-' and '_', that begins with a "
            f"letter, and not {_ALL!r}"
        )
    return name


def check_name(what: str, name: object) -> str:
    """Returns `name` if it is non-empty UTF-8 of at most 1 KB. Raises `InvalidNameError` or `TypeError` otherwise."""
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a string, not {type(name).__name__}")
    if not name:
        raise InvalidNameError(what, name, "is empty")
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError as error:
        raise InvalidNameError(what, name, "is not valid Unicode") from error
    if size_bytes > MAX_NAME_BYTES:
        raise InvalidNameError(what, name[:40] + "…", f"has {size_bytes} bytes, over {MAX_NAME_BYTES}")
    return str.__str__(name)  # `str(name)` of a member of an Enum is its name


def check_steps(steps_completed: object) -> int:
    """Returns a number of steps as a plain int. Raises `TypeError`, or `ValueError` for a negative or huge one."""
    if isinstance(steps_completed, bool) or not isinstance(steps_completed, SupportsIndex):
        kind = type(steps_completed).__name__
        raise TypeError(f"steps_completed is {steps_completed!r}, a {kind}; it must be an int")
    number = operator.index(steps_completed)
    if not 0 <= number < MAX_INT:
        raise ValueError(f"steps_completed is {number}; it must be between 0 and 2**63 - 1")
    return number


def check_seed(seed: object) -> int:
    """Returns the seed as a plain int. Raises `TypeError`, or `ValueError` for a number outside of 0 to `MAX_SEED`."""
    if isinstance(seed, bool) or not isinstance(seed, SupportsIndex):
        raise TypeError(f"seed is {seed!r}; it must be an integer")
    number = operator.index(seed)
    if not 0 <= number <= MAX_SEED:
        raise ValueError(f"seed is {number}; it must be from 0 to {MAX_SEED}")
    return number
