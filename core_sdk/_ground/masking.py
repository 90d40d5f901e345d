"""The one list of rules by which secrets are told, and hidden wherever values are shown or exported.

Masked are values whose names say that they are secret, the user and the password in URLs, and parameters of URLs and
arguments of commands with such names. The records themselves stay as they were given: trainings need them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

MASK = "********"

_CERTAIN = r"passw(?:or)?d|passphrase|passcode|secret"
_KEYS = r"(?:api|access|account|auth|client|encryption|license|private|service|shared|signing|ssh|storage)_?keys?"
_WORDS = r"auth|cookies?|creds?|dsn|jwt|psk|pw\d*|pwd|sas"
# Models have tokens of their own, which are no secrets.
_TOKEN = r"(?<!bos_)(?<!cls_)(?<!eos_)(?<!mask_)(?<!pad_)(?<!sep_)(?<!special_)(?<!unk_)token"
_SECRET = re.compile(
    rf"{_CERTAIN}|credential|authorization|bearer|connection_?string|{_KEYS}"
    rf"|(?<![a-z])(?:{_WORDS})(?![a-z])|(?<![a-z])(?:pass|{_TOKEN})$"
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SPECIAL_TOKEN = re.compile(r"<.*>|\[.*\]")
_IN_URLS = frozenset({"key", "sig"})

_USER = re.compile(r"(?<=://)[^/?#\s]*@")
_PARAMETER = re.compile(r"(?<=[?&])([\w.-]+)=([^&#\s'\"]+)")
_ARGUMENT = re.compile(r"(?<![^\s'\"])([-+~]*[A-Za-z_][\w.-]*)(=|(?<=[\w-])\s+(?!-))('[^']*'|\"[^\"]*\"|[^\s'\"]+)")


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Returns whether a value of this name is a secret: `db_password`, `hf-token` and `apiKey` are such names."""
    return _SECRET.search(_spelt(name)) is not None


def masked_text(text: str) -> str:
    """Returns a text without the secrets in its URLs."""
    if "://" not in text:
        return text
    return _PARAMETER.sub(_masked_parameter, _USER.sub(f"{MASK}@", text))


def masked_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns named values, such as hyperparameters, with their secrets masked, also in groups and lists."""
    return {name: _masked_value(name, value) for name, value in values.items()}


def masked_arguments(arguments: Sequence[str]) -> list[str]:
    """Returns the words of a command without the values of options, variables and settings that are secrets."""
    shown, is_value = [], False
    for argument in arguments:
        shown.append(MASK if is_value and not argument.startswith("-") else masked_command(argument))
        is_value = argument.startswith("-") and "=" not in argument and is_secret_name(argument.lstrip("-"))
    return shown


def masked_command(command: str) -> str:
    """Returns a command in one text without its secrets, as `masked_arguments` does."""
    return masked_text(_ARGUMENT.sub(_masked_argument, command))


def _spelt(name: str) -> str:
    return re.sub(r"[\W_]+", "_", _HUMP.sub("_", name)).lower().strip("_")


def _masked_value(name: str, value: Any) -> Any:
    if is_secret_name(name):
        return _hidden(value, is_certain=re.search(_CERTAIN, _spelt(name)) is not None)
    match value:
        case str():
            return masked_text(value)
        case Mapping():
            return masked_values(value)
        case list() | tuple():
            return [_masked_value("", item) for item in value]
    return value


def _hidden(value: Any, *, is_certain: bool) -> Any:
    """Hides texts, and numbers if the name leaves no doubt: most numbers called `token` are counts."""
    match value:
        case str():
            return value if not value or (not is_certain and _SPECIAL_TOKEN.fullmatch(value)) else MASK
        case Mapping():
            # The space of a hyperparameter: its values are hidden, and it stays one.
            hidden = ("val", "vals") if "type" in value else value
            return {name: _hidden(one, is_certain=is_certain) if name in hidden else one for name, one in value.items()}
        case list() | tuple():
            return [_hidden(item, is_certain=is_certain) for item in value]
        case int() | float() if is_certain and not isinstance(value, bool):
            return MASK
    return value


def _masked_parameter(match: re.Match[str]) -> str:
    name = match[1]
    is_secret = name.lower() in _IN_URLS or "signature" in name.lower() or is_secret_name(name)
    return f"{name}={MASK}" if is_secret else match[0]


def _masked_argument(match: re.Match[str]) -> str:
    name, between, _ = match.groups()
    is_option = between == "=" or name.startswith("-")
    return f"{name}{between}{MASK}" if is_option and is_secret_name(name.lstrip("-+~")) else match[0]
