"""Trials as tools of the Model Context Protocol, for agents that use no shell."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from core_sdk._analysis.evidence._bounds import MOST_BYTES, bounded
from core_sdk._analysis.evidence._evidence import read_evidence
from core_sdk._analysis.evidence._mcp_sdk import MCPServer, ToolAnnotations, ToolError
from core_sdk._analysis.evidence._study_tools import add_study_tools
from core_sdk._analysis.evidence._tree import tree_lines
from core_sdk._execution.steering import trials
from core_sdk._ground.records import strict_json
from core_sdk._ground.version import __version__
from core_sdk._home import Home, open_view
from core_sdk._home.finding.facts import field_of, problem_with, read_facts
from core_sdk._home.finding.order import in_order
from core_sdk._home.finding.tree import trial_tree
from core_sdk._home.finding.tries import study_here
from core_sdk._home.finding.where import parse_condition
from core_sdk.errors import CoreSDKError

_READS = ToolAnnotations(read_only_hint=True)
_INSTRUCTIONS = "Trainings recorded by Core SDK in the home {}. Every answer has at most 4 KB. {}"
_NO_STUDY = "No study was begun in the directory of this server: `core-sdk study begin` begins one."


def make_server(home: Home, *, can_write: bool) -> MCPServer:
    """Returns a server of the home's trials. Without `can_write` it has only tools that read."""
    told = _INSTRUCTIONS.format(home.root, _study_here(home))
    server = MCPServer("core-sdk", version=__version__, instructions=told, log_level="CRITICAL")

    def list_trials(where: str = "", sort: str = "-id", names: Sequence[str] = ()) -> str:
        """List trials, the newest first, each as a line of JSON.

        `where` is a condition such as `state = COMPLETED and validation.loss < 0.5`, `sort` a name with an optional
        minus, `names` further values: hyperparameters such as `hparams.lr`, and metrics such as `validation.loss`.
        """
        with _telling_errors():
            condition = parse_condition(where) if where else None
            with open_view(home) as view:
                found = read_facts(view, view.trials())
            if condition is not None:
                condition.check(lambda name: problem_with(name, found), lambda name: field_of(name, found))
            for name in filter(None, (sort.removeprefix("-"), *names)):
                if problem := problem_with(name, found):
                    raise ValueError(problem)
        chosen = in_order([one for one in found if condition is None or condition.holds(one.value)], sort)
        shown = ("id", "name", "state", "steps", "parent", "verdict", *names)
        lines = [strict_json({name: one.value(name) for name in shown}) for one in chosen]
        return bounded(MOST_BYTES, lines or [f"none of the {len(found)} trials in the home {home.root}"])

    def trial_evidence(trial_id: int, metric: str = "", smaller_is_better: bool | None = None) -> str:
        """Show what helps to decide about a trial: what it varies, its curve, its best value, its last error.

        Without `metric` the one decides that was recorded (`core-sdk run --metric`). `smaller_is_better` says how to
        read a metric that was not recorded, by default true.
        """
        with _telling_errors(), open_view(home) as view:
            return read_evidence(home, view, trial_id, metric or None, smaller_is_better).text()

    def tree_of_trials(root: int | None = None, metric: str = "", smaller_is_better: bool | None = None) -> str:
        """Show variations below the trials that they vary, each with its verdict, its best value and its hypothesis.

        `metric` and `smaller_is_better` are as in `trial_evidence`.
        """
        with _telling_errors(), open_view(home) as view:
            if root is not None:
                view.trial(root)
            branches = trial_tree(read_facts(view, view.trials()), root)
        lines = [*tree_lines(home, branches, metric or None, smaller_is_better)]
        return bounded(MOST_BYTES, lines or [f"no variations in the home {home.root}"], is_end_kept=True)

    for reads in (list_trials, trial_evidence, tree_of_trials):
        server.add_tool(reads, annotations=_READS, structured_output=False)  # else each text is sent twice
    add_study_tools(server, can_write=can_write)
    if can_write:
        _add_writing(server, home)
    return server


def _study_here(home: Home) -> str:
    """Returns the words for the study of this directory."""
    experiment_id = study_here(home, str(Path.cwd().resolve()))
    if experiment_id is None:
        return _NO_STUDY
    record = home.experiment(experiment_id).read()
    decides = "" if record.study is None else f", which {record.study.best_by} decides"
    return f"The study of this directory is {record.name!r}{decides}: try_code, wait, board and verdict are for it."


@contextlib.contextmanager
def _telling_errors() -> Iterator[None]:
    """Tells the client what was wrong with its call; any other error is ours, and is only said to have happened."""
    try:
        yield
    except (CoreSDKError, ValueError, OSError) as error:
        raise ToolError(_error_text(str(error))) from error


def _error_text(text: str) -> str:
    """Returns the words of an error, which the server puts after the name of the tool."""
    return bounded(MOST_BYTES - 200, text.strip().split("\n"))


def _add_writing(server: MCPServer, home: Home) -> None:
    def run_variation(
        command: list[str], directory: str, hypothesis: str, parent: int | None = None, time_limit: str = "5m"
    ) -> str:
        """Start a training in the background, as a variation of the trial `parent`, and return the trial's number.

        `command` starts the training, such as `["python", "train.py"]`, and runs in `directory`, an absolute path.
        """
        if not Path(directory).is_absolute():
            raise ToolError(f"{directory!r} is no absolute path: this server does not know your directory")
        if not Path(directory).is_dir():
            raise ToolError(f"there is no directory {directory}")
        varied = [] if parent is None else ["--parent", str(parent)]
        told = ["--hypothesis", hypothesis, "--time-limit", time_limit, *varied]
        started = subprocess.run(
            [sys.executable, "-m", "core_sdk._interfaces.cli", "run", "--detach", *told, "--", *command],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if started.returncode:
            raise ToolError(_error_text(started.stderr))
        return started.stdout.strip()

    def decide(trial_id: int, verdict: str, why: str = "") -> str:
        """Record the verdict on a trial: keep or discard, with the reason."""
        with _telling_errors():
            trials.describe(home, trial_id, verdict=verdict, verdict_reason=why)
        return f"trial {trial_id}: {verdict}"

    for writes in (run_variation, decide):
        server.add_tool(writes, structured_output=False)
