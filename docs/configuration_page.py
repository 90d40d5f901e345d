"""Writes docs/configuration.md, the reference of the configuration, from the types in `core_sdk._ground.config`.

python docs/configuration_page.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec.structs import FieldInfo

from core_sdk._ground.config._kinds import bare, describe, fields_of, meta_of, sections
from core_sdk._ground.config._short_forms import OLD_SEARCHERS
from core_sdk._ground.config.experiment import EnvironmentVariables, ExperimentConfig
from core_sdk._ground.config.hyperparameters import Hyperparameter
from core_sdk._ground.config.lengths import Length, Period
from core_sdk._ground.config.searchers import Searcher, SearcherConfig
from core_sdk._ground.sections import Section

PAGE = Path(__file__).with_name("configuration.md")

INTRODUCTION = """\
# The configuration of an experiment

<!-- Made by `python docs/configuration_page.py` from the types in core_sdk/config. -->

An experiment is configured by a YAML file:

```yaml
name: mnist
entrypoint: python3 train.py
hyperparameters:
  learning_rate: {loguniform: [1e-5, 1e-1]}
  layers: {type: int, minval: 2, maxval: 8}
  optimizer:
    name: {type: categorical, vals: [adam, sgd]}
    momentum: 0.9
searcher:
  name: adaptive_asha
  metric: validation_loss
  max_trials: 64
  time_metric: epochs
  max_time: 16
resources:
  slots_per_trial: 1
```

The keys come from Determined 0.38.1. Its files load as they are, and so do older ones: keys that have no meaning
here are [ignored with a warning](#ignored-keys), and those that cannot be honoured are [refused](#refused-keys). Any
other key is an error. An error says the file, the line, the key and the nearest key that exists. All errors of a file
are shown at once.

`--config KEY=VALUE` has precedence over the file. The key is dotted, the value is YAML, and values with commas between
them are a list: `--config searcher.max_trials=8`, `--config labels=a,b`.

Values are read by the rules of YAML 1.2: `1e-5` is a number, `010` is ten, and `yes`, `no`, `on`, `off` and dates are
strings. A key with the value `null` is not set. Anchors and `<<` are known. No key may be given twice in one map.
"""

ENTRYPOINT = """\
## The entrypoint

A string is run by a shell, `sh -c`. A list is run as it is. Programs are found by the `PATH` of whoever submits the
experiment, as for `core-sdk run`: activate the environment of your scripts first. For several processes, either form
begins with a launcher:

```yaml
entrypoint: python3 -m launch.torch_distributed python3 train.py
searcher: {name: single, metric: validation_loss}
resources: {slots_per_trial: 4}
```

`python3 -m determined.launch.torch_distributed` means the same, and so do the other launchers' old names.

Scripts that read arguments get the trial's hyperparameters in the entrypoint. `${hparams.NAME}` is the value of one,
`${hparams.optimizer.lr}` that of one in a group, and `${args}`, a word of its own, is all of them as options:

```yaml
entrypoint: python3 train.py --data $HOME/data ${args}
hyperparameters:
  lr: {type: categorical, vals: [0.1, 0.01]}
  batch-size: 32
searcher: {name: grid, metric: validation_loss}
```

starts `python3 train.py --data $HOME/data --lr=0.1 --batch-size=32`. An option has the name of the hyperparameter as it
is written here, with underscores or dashes, and in a group with dots: `--optimizer.lr=0.1`. True is an option without a
value, `--amp`; false and null are left out; a list is an option with several values, `--layers 64 32`. As one value,
`${hparams.NAME}`, true and false are `true` and `false`, null is nothing, and a list or a group is JSON.

No value is run by the shell, whatever it contains, and none is split at its spaces. Within single quotes nothing is
replaced. All else is left to the shell: `$HOME`, `${HOME}` and `$$` are what they are everywhere, and a variable of the
shell with the name `args` is written `$args`. A name that no hyperparameter has is refused when the experiment is
submitted. `info.trial.hparams` has the values as well.

A Trial class [needs no script](pytorch.md#trial-classes-without-a-script): `entrypoint: model_def:MyTrial` trains it as
the configuration says. It means
`python3 -m core_sdk.pytorch model_def:MyTrial`, or, on several slots,
`python3 -m launch.torch_distributed --trial model_def:MyTrial`. The other launchers have `--trial`, too.

## Lengths

A length has a unit, `{batches: 100}`, `{records: 6400}` or `{epochs: 2}`. A number alone counts batches for a Trainer;
elsewhere the script decides what it counts.
"""

HYPERPARAMETERS = """\
## Hyperparameters

A value is a constant. A map with a `type` is one of those below. A map without one is a group of hyperparameters, which
the script gets as a map. Tables have their names with dots: `optimizer.momentum`.

A list is a constant for `single` and `custom`. Searchers that choose values refuse it: write
`{type: categorical, vals: [0.1, 0.2]}` to choose one of the values, or `{type: const, val: [0.1, 0.2]}` to give each
trial the whole list. They also refuse a map with only words of a range or of a choice, such as `{min: 0, max: 1}`, but
no `type`.

`{loguniform: [1e-5, 1e-1]}` is a `log` by its values instead of exponents, and may have a `count`, too.
"""

SEARCHERS = """\
## Searchers

`single`, `random` and `grid` train every trial to its end. `async_halving` (or `asha`) and `adaptive_asha` compare
trials at rungs. With `time_metric` and `max_time`, a trial trains on from rung to rung, and is stopped at one where it
is not among the best. With `max_length`, a trial asks `searcher.operations()` how long to train; it pauses at each
rung, and goes on once it is among the best.

All searchers have these keys:
"""


def page() -> str:
    """Returns the text of the page."""
    return "\n".join(
        [
            INTRODUCTION,
            *_table(fields_of(ExperimentConfig)),
            ENTRYPOINT,
            *(line for field in fields_of(ExperimentConfig) for line in _section(field.name, field.type)),
            HYPERPARAMETERS,
            *_alternatives(get_args(Hyperparameter), set()),
            SEARCHERS,
            *_table(fields_of(SearcherConfig)),
            *_alternatives(get_args(Searcher), {field.name for field in fields_of(SearcherConfig)}),
            "## Ignored keys\n",
            *_reasons("ignored"),
            "",
            "## Refused keys\n",
            *_reasons("refused"),
            *(f"| `searcher.name: {old}` | use `{new}` |" for old, new in OLD_SEARCHERS.items()),
            "",
        ]
    )


def _table(fields: Iterable[FieldInfo], section: str = "") -> Iterator[str]:
    yield "| key | value | default | |"
    yield "|---|---|---|---|"
    for field in fields:
        yield f"| `{field.name}` | {_kind(field.type)} | {_default(field)} | {_meaning(field, section)} |"
    yield ""


def _section(name: str, kind: Any) -> Iterator[str]:
    """Yields the keys of a section, and of the sections inside, each with a heading."""
    for section in sections(kind):
        if section.__struct_config__.tag is None and fields_of(section):
            yield f"## `{name}`\n\n{section.__doc__}\n"
            yield from _table(fields_of(section), name)
            for field in fields_of(section):
                yield from _section(f"{name}.{field.name}", field.type)


def _alternatives(kinds: Iterable[type[Section]], common: set[str]) -> Iterator[str]:
    for kind in kinds:
        yield f"### `{kind.__struct_config__.tag}`\n\n{(kind.__doc__ or '').partition(chr(10))[0]}\n"
        if own := [field for field in fields_of(kind) if field.name not in common]:
            yield from _table(own)


def _reasons(what: str) -> Iterator[str]:
    yield "| key | reason |"
    yield "|---|---|"
    for prefix, section in _named_sections("", ExperimentConfig):
        for key, reason in getattr(section, what).items():
            yield f"| `{prefix}{key}` | {reason} |"


def _named_sections(prefix: str, section: type[Section]) -> Iterator[tuple[str, type[Section]]]:
    yield prefix, section
    for field in fields_of(section):
        for inner in sections(field.type):
            if inner.__struct_config__.tag is None:
                yield from _named_sections(f"{prefix}{field.name}.", inner)


def _kind(kind: Any) -> str:
    if bare(kind) in (Length, Period):
        return "a length"
    if bare(kind) is Any:
        return "any"
    return "a list or a map" if bare(kind) is EnvironmentVariables else describe(kind)


def _default(field: FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default is None or isinstance(field.default, tuple | msgspec.Struct) or field.default is msgspec.NODEFAULT:
        return ""
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    return f"`{field.default}`" if isinstance(field.default, int | float) or field.default else ""


def _meaning(field: FieldInfo, section: str) -> str:
    inner = next(sections(field.type), None)
    # The anchor of a heading leaves out its dots.
    anchor = f"{section}{field.name}".replace(".", "")
    return meta_of(field.type).description or f"[{(inner.__doc__ or '').partition('.')[0]}](#{anchor})"


if __name__ == "__main__":
    (Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE).write_text(page())
