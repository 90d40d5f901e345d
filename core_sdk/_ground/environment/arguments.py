"""Fills the hyperparameters of a trial into its command, for scripts that read arguments. Pure.

`${hparams.NAME}` stands for one value, and `${args}` for all of them as options: `--lr=0.1 --layers 64 32`. In a string
that a shell runs, a value becomes an environment variable and the placeholder names that variable, so that the shell
never reads the value as a part of its program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core_sdk._ground.environment.names import ARGUMENT_PREFIX
from core_sdk.errors import CommandError

_PLACEHOLDER = re.compile(r"\$\{(?:args|hparams\.([^{}]+))\}")
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})


def fill(argv: Sequence[str], hparams: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Returns the command with its values, and the environment variables that it needs.

    Raises `CommandError` if the trial does not have a hyperparameter that the command names.
    """
    filled: list[str] = []
    variables: dict[str, str] = {}
    for index, word in enumerate(argv):
        if _is_shell_text(argv, index):
            filled.append(_fill_shell_text(word, hparams, variables))
        elif word == "${args}":
            filled += options(hparams)
        else:
            filled.append(_PLACEHOLDER.sub(lambda found: " ".join(_words(found, hparams)), word))
    return filled, variables


def named(argv: Sequence[str]) -> list[str]:
    """Returns the names of the hyperparameters that the command names."""
    return [name for word in argv for name in _PLACEHOLDER.findall(word) if name]


def options(hparams: Mapping[str, Any]) -> list[str]:
    """Returns the hyperparameters as options, by their own names: a name in a group has dots, `--optimizer.lr=0.1`.

    True is an option without a value, false and null are left out, and a list is an option with several values.
    """
    words = []
    for name, value in _leaves(hparams):
        match value:
            case None | False:
                pass
            case True:
                words.append(f"--{name}")
            case list() | tuple():
                words += [f"--{name}", *map(text_of, value)] if value else []
            case _:
                words.append(f"--{name}={text_of(value)}")
    return words


def text_of(value: Any) -> str:
    """Returns a value as text: a string as it is, null as nothing, and all else as JSON writes it."""
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _leaves(hparams: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in hparams.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _words(found: re.Match[str], hparams: Mapping[str, Any]) -> list[str]:
    """Returns the words for which a placeholder stands."""
    if (name := found[1]) is None:
        return options(hparams)
    value: Any = hparams
    for key in name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            known = ", ".join(known for known, _ in _leaves(hparams)) or "none"
            raise CommandError(
                f"the command names ${{hparams.{name}}}, but the trial has no hyperparameter {name}. It has {known}."
            )
        value = value[key]
    return [text_of(value)]


def _is_shell_text(argv: Sequence[str], index: int) -> bool:
    """Returns whether the word is what a shell runs: the one after `sh -c`."""
    return index > 1 and Path(argv[index - 2]).name in _SHELLS and re.fullmatch(r"-\w*c", argv[index - 1]) is not None


def _fill_shell_text(text: str, hparams: Mapping[str, Any], variables: dict[str, str]) -> str:
    """Returns the text with variables in place of the placeholders, and adds these variables.

    As in the shell, nothing is replaced within single quotes, after a backslash, or after another `$`.
    """
    filled, quote, position = [], "", 0
    while position < len(text):
        found = _PLACEHOLDER.match(text, position) if quote != "'" else None
        if found is not None:
            names = []
            for word in _words(found, hparams):
                names.append(f"{ARGUMENT_PREFIX}{len(variables) + 1}")
                variables[names[-1]] = word
            filled.append(" ".join(f"${{{name}}}" if quote else f'"${{{name}}}"' for name in names))
            position = found.end()
            continue
        length = 2 if quote != "'" and (text[position] == "\\" or text.startswith("$$", position)) else 1
        if length == 1 and text[position] in "'\"" and quote in ("", text[position]):
            quote = "" if quote else text[position]
        filled.append(text[position : position + length])
        position += length
    return "".join(filled)
