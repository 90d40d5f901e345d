"""torchrun's options, read without torch, so that the ranks of a single node start before torch is imported."""

from __future__ import annotations

import copy
from argparse import REMAINDER, SUPPRESS
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from core_sdk._ground.environment import torchrun_variables
from launch._command_line import OptionParser, UsageError


def _filters(text: str) -> list[str]:
    """Splits at commas; two commas stand for one that belongs to a filter."""
    return [each.replace("\0", ",") for each in text.replace(",,", "\0").split(",")]


def _option(help: str, default: Any = None, *, short: str | None = None, has_variable: bool = True, **kind: Any) -> Any:
    """Describes an option. `kind` is for argparse."""
    metadata = {"help": help, "short": short, "has_variable": has_variable, "kind": kind}
    return field(default_factory=lambda: copy.copy(default), metadata=metadata)


def _flag(help: str, short: str | None = None) -> Any:
    return _option(help, False, short=short, action="store_true")


@dataclass(frozen=True)
class TorchrunOptions:
    """The options of torchrun. Each is also written with dashes, and most may be set by a variable `PET_…`."""

    nnodes: str = _option("the number of nodes, or MIN:MAX", "1:1")
    nproc_per_node: str = _option("the number of ranks on this node: a number, auto, cpu, gpu or xpu", "1")
    rdzv_backend: str = _option("how the nodes meet: static, c10d, etcd, etcd-v2, or one that is registered", "static")
    rdzv_endpoint: str = _option("where the nodes meet, usually HOST:PORT", "")
    rdzv_id: str = _option("the id of the training, the same on all nodes", "none")
    rdzv_conf: str = _option("more settings of the rendezvous: KEY=VALUE,…", "")
    standalone: bool = _flag("run on this node alone, whatever else says where nodes meet")
    max_restarts: int = _option("how often the ranks may be started again", 0, type=int)
    monitor_interval: float = _option("the seconds between two looks at the ranks", 0.1, type=float)
    start_method: str = _option("accepted; ranks are always executed", "spawn", choices=("spawn", "fork", "forkserver"))
    event_log_handler: str = _option("the handler of torch's events", "null")
    role: str = _option("the role of this node's ranks", "default")
    module: bool = _flag("the script is a module's name, as behind python -m", short="-m")
    no_python: bool = _flag("accepted; the script is always started as it is written")
    run_path: bool = _flag("accepted; a script is always run by an interpreter of its own")
    log_dir: str | None = _option("the directory of the log files")
    redirects: str = _option(
        "which output goes to files: 0 none, 1 stdout, 2 stderr, 3 both; or RANK:N,…", "0", short="-r"
    )
    tee: str = _option("which output goes to files too, in the same form", "0", short="-t")
    log_line_prefix_template: str = _option(
        "what each line begins with; ${role_name}, ${rank}, ${local_rank}, ${hostname}", ""
    )
    local_ranks_filter: str = _option("the local ranks whose output is shown: 0,1,…", "")
    duplicate_stdout_filters: Sequence[str] = _option(
        "texts: lines of stdout with one of them go to a file too", [], type=_filters
    )
    duplicate_stderr_filters: Sequence[str] = _option(
        "texts: lines of stderr with one of them go to a file too", [], type=_filters
    )
    node_rank: int = _option("the number of this node, from 0", 0, type=int)
    master_addr: str = _option("the address of the first node", "127.0.0.1")
    master_port: int | None = _option("the port on the first node", type=int)
    local_addr: str | None = _option("the address of this node")
    logs_specs: str | None = _option("the registered class that decides about log files", has_variable=False)
    numa_binding: str | None = _option(
        "bind each rank to cores near its GPU",
        choices=("node", "socket", "exclusive", "core-complex"),
        has_variable=False,
    )
    signals_to_handle: str = _option("the signals that the ranks are told of", "SIGTERM,SIGINT,SIGHUP,SIGQUIT")
    shutdown_timeout: int | None = _option(
        "the seconds that ranks may take to end after a stop was asked for", type=int
    )
    virtual_local_rank: bool = _flag("show each rank its own GPU only, as device 0")
    given: Mapping[str, Any] = field(default_factory=dict)
    """The values that come from an override or a PET_… variable."""


_OPTIONS = tuple(option for option in fields(TorchrunOptions) if option.metadata)
_DEFAULTS = TorchrunOptions()


def parse_options(overrides: Sequence[str]) -> TorchrunOptions:
    """Parses torchrun's options, in all spellings and abbreviations that torchrun understands. Raises `UsageError`."""
    on_line = vars(_parser().parse_args(overrides))
    if on_line.pop("words"):
        raise UsageError("torchrun's options are followed by something else before `--`; the script comes after it")
    given = _from_variables() | on_line
    return TorchrunOptions(**given, given=given)


def with_dashes(arguments: Sequence[str]) -> list[str]:
    """Returns a launcher's command line with `--` between the options and the script, as other launchers need it.

    Under torchrun the first word that is no option, nor the value of one, is the script, whose name is a module's with
    `-m`. Pure, but for the variable PET_MODULE.
    """
    arguments = list(arguments)
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    parser = _parser(has_script=True)
    parser.add_argument("--hostfile", default=SUPPRESS)
    try:
        # The last word stands for a script behind the `--`, if there is one.
        given = parser.parse_args([*before, "SCRIPT"])
    except UsageError:
        return arguments  # the parser of the options says what is wrong with them
    options, script = before[: len(before) - len(given.arguments)], arguments[len(before) - len(given.arguments) :]
    script = script[1:] if script[:1] == ["--"] else script
    is_module = "module" in given or _from_variables().get("module", False)
    if is_module and script and script[0] != "-m":
        script = ["-m", *script]
    return [*options, "--", *script] if script else arguments


def options_text() -> str:
    """Returns the help on torchrun's options."""
    return _parser().format_help().partition("options:\n")[2]


def _parser(*, has_script: bool = False) -> OptionParser:
    """Returns the parser of the options, or of torchrun's whole line."""
    parser = OptionParser(prog="torchrun", add_help=False)
    for name, about in ((option.name, option.metadata) for option in _OPTIONS):
        kind, default = about["kind"], getattr(_DEFAULTS, name)
        if not kind.keys() & {"action", "choices"}:
            kind = {"metavar": name.rpartition("_")[2].upper(), **kind}
        strings = dict.fromkeys([*filter(None, [about["short"]]), f"--{name.replace('_', '-')}", f"--{name}"])
        help_text = about["help"] if default in (None, "", False, []) else f"{about['help']}; default: {default}"
        parser.add_argument(*strings, dest=name, default=SUPPRESS, help=help_text, **kind)
    if has_script:
        parser.add_argument("script")
        parser.add_argument("arguments", nargs=REMAINDER)
    else:
        parser.add_argument("words", nargs="*", help=SUPPRESS)
    return parser


def _from_variables() -> dict[str, Any]:
    """Returns the options that PET_… variables give. Raises `UsageError`."""
    variables = torchrun_variables()
    given = {}
    for name, about in ((option.name, option.metadata) for option in _OPTIONS):
        if (text := variables.get(name)) is not None and about["has_variable"]:
            try:
                given[name] = bool(int(text)) if "action" in about["kind"] else about["kind"].get("type", str)(text)
            except ValueError:
                option_name = name.replace("_", "-")
                raise UsageError(f"PET_{name.upper()} is {text!r}, which --{option_name} cannot be") from None
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
