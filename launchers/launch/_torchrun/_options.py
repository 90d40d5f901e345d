"""torchrun's options, read without torch, so that the ranks of a single node start before torch is imported."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core_sdk.environment import torchrun_variables
from launch._command_line import OptionParser, UsageError


@dataclass(frozen=True)
class _Option:
    """An option as torchrun has it. It is also written with underscores, and may be set by the variable `PET_…`."""

    name: str
    help: str
    default: Any = None
    type: Callable[[str], Any] = str
    choices: tuple[str, ...] | None = None
    short: str | None = None
    has_variable: bool = True

    @property
    def dest(self) -> str:
        return self.name.replace("-", "_")

    @property
    def metavar(self) -> str | None:
        return None if self.choices else self.name.rpartition("-")[2].upper()

    @property
    def is_flag(self) -> bool:
        return self.type is bool

    @property
    def strings(self) -> list[str]:
        return [*([self.short] if self.short else []), *dict.fromkeys([f"--{self.name}", f"--{self.dest}"])]


def _filters(text: str) -> list[str]:
    """Splits at commas; two commas stand for one that belongs to a filter."""
    return [each.replace("\0", ",") for each in text.replace(",,", "\0").split(",")]


def _flag(name: str, help: str, short: str | None = None) -> _Option:
    return _Option(name, help, default=False, type=bool, short=short)


_OPTIONS = (
    _Option("nnodes", "the number of nodes, or MIN:MAX", "1:1"),
    _Option("nproc-per-node", "the number of ranks on this node: a number, auto, cpu, gpu or xpu", "1"),
    _Option("rdzv-backend", "how the nodes meet: static, c10d, etcd, etcd-v2, or one that is registered", "static"),
    _Option("rdzv-endpoint", "where the nodes meet, usually HOST:PORT", ""),
    _Option("rdzv-id", "the id of the training, the same on all nodes", "none"),
    _Option("rdzv-conf", "more settings of the rendezvous: KEY=VALUE,…", ""),
    _flag("standalone", "run on this node alone, whatever else says where nodes meet"),
    _Option("max-restarts", "how often the ranks may be started again", 0, int),
    _Option("monitor-interval", "the seconds between two looks at the ranks", 0.1, float),
    _Option("start-method", "accepted; ranks are always executed", "spawn", choices=("spawn", "fork", "forkserver")),
    _Option("event-log-handler", "the handler of torch's events", "null"),
    _Option("role", "the role of this node's ranks", "default"),
    _flag("module", "refused: a module follows `--`, as -m MODULE", short="-m"),
    _flag("no-python", "accepted; the script is always started as it is written"),
    _flag("run-path", "refused: a script follows `--`"),
    _Option("log-dir", "the directory of the log files"),
    _Option(
        "redirects", "which output goes to files: 0 none, 1 stdout, 2 stderr, 3 both; or RANK:N,…", "0", short="-r"
    ),
    _Option("tee", "which output goes to files too, in the same form", "0", short="-t"),
    _Option(
        "log-line-prefix-template", "what each line begins with; ${role_name}, ${rank}, ${local_rank}, ${hostname}", ""
    ),
    _Option("local-ranks-filter", "the local ranks whose output is shown: 0,1,…", ""),
    _Option("duplicate-stdout-filters", "texts: lines of stdout with one of them go to a file too", [], _filters),
    _Option("duplicate-stderr-filters", "texts: lines of stderr with one of them go to a file too", [], _filters),
    _Option("node-rank", "the number of this node, from 0", 0, int),
    _Option("master-addr", "the address of the first node", "127.0.0.1"),
    _Option("master-port", "the port on the first node", None, int),
    _Option("local-addr", "the address of this node"),
    _Option("logs-specs", "the registered class that decides about log files", has_variable=False),
    _Option(
        "numa-binding",
        "bind each rank to cores near its GPU",
        choices=("node", "socket", "exclusive", "core-complex"),
        has_variable=False,
    ),
    _Option("signals-to-handle", "the signals that the ranks are told of", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"),
    _Option("shutdown-timeout", "the seconds that ranks may take to end after a stop was asked for", None, int),
    _flag("virtual-local-rank", "show each rank its own GPU only, as device 0"),
)
_DEFAULTS = {option.dest: option.default for option in _OPTIONS}


@dataclass(frozen=True)
class TorchrunOptions:
    values: Mapping[str, Any]
    """The values of all options, by torch's names for them, such as `nproc_per_node`."""
    given: Mapping[str, Any]
    """The values that come from an override or a PET_… variable."""


def parse_options(overrides: Sequence[str]) -> TorchrunOptions:
    """Parses torchrun's options, in all spellings and abbreviations that torchrun understands. Raises `UsageError`."""
    on_line = vars(_parser().parse_args(overrides))
    if on_line.pop("words"):
        raise UsageError("torchrun's options are followed by something else before `--`; the script comes after it")
    given = _from_variables() | on_line
    for name in ("module", "run_path"):
        if given.get(name):
            option_name = name.replace("_", "-")
            raise UsageError(
                f"--{option_name} is no override: write `-- -m MODULE` or `-- SCRIPT.py`, as without torchrun"
            )
    given.pop("no_python", None)
    return TorchrunOptions(_DEFAULTS | given, given)


def options_text() -> str:
    """Returns the help on torchrun's options."""
    return _parser().format_help().partition("options:\n")[2]


def _parser() -> OptionParser:
    parser = OptionParser(prog="torchrun", add_help=False)
    for option in _OPTIONS:
        kind: dict[str, Any] = {"type": option.type, "choices": option.choices, "metavar": option.metavar}
        if option.is_flag:
            kind = {"action": "store_true"}
        help_text = (
            option.help if option.default in (None, "", False, []) else f"{option.help}; default: {option.default}"
        )
        parser.add_argument(*option.strings, dest=option.dest, default=SUPPRESS, help=help_text, **kind)
    parser.add_argument("words", nargs="*", help=SUPPRESS)
    return parser


def _from_variables() -> dict[str, Any]:
    """Returns the options that PET_… variables give. Raises `UsageError`."""
    variables = torchrun_variables()
    given = {}
    for option in _OPTIONS:
        if (text := variables.get(option.dest)) is not None and option.has_variable:
            try:
                given[option.dest] = bool(int(text)) if option.is_flag else option.type(text)
            except (ValueError, ArgumentTypeError):
                raise UsageError(f"PET_{option.dest.upper()} is {text!r}, which --{option.name} cannot be") from None
    return given


def split_hostfile(overrides: Sequence[str]) -> tuple[Path | None, tuple[str, ...]]:
    """Returns the file of `--hostfile`, which torchrun lacks, or None; and torchrun's options. Raises `UsageError`."""
    parser = OptionParser(prog="launch.torch_distributed", add_help=False, allow_abbrev=False)
    parser.add_argument("--hostfile", type=Path)
    given, options = parser.parse_known_args(overrides)
    return given.hostfile, tuple(options)


def node_range(nnodes: str) -> tuple[int, int]:
    """Returns the least and the highest number of nodes, from `N` or `MIN:MAX`. Raises `UsageError`."""
    least, _, most = nnodes.partition(":")
    try:
        numbers = int(least), int(most or least)
    except ValueError:
        raise UsageError(f"--nnodes={nnodes} is no number of nodes: give N or MIN:MAX") from None
    if not 1 <= numbers[0] <= numbers[1]:
        raise UsageError(f"--nnodes={nnodes} cannot be: give N or MIN:MAX with 1 <= MIN <= MAX")
    return numbers
