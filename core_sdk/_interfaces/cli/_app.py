"""The command `core-sdk`. The module of a command is imported when the command is asked for."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import click

from core_sdk._ground.version import __version__
from core_sdk._interfaces.cli._command_after_dashes import CommandAfterDashes
from core_sdk._interfaces.cli._group import MEANT, Lazy, LazyGroup, command_group
from core_sdk._interfaces.signatures import Option

_EPILOG = """Exit status: 0 done; 1 failed, or a check found damage; 2 wrong usage; 3 what was named (a trial, an
experiment, a checkpoint, an attempt, a group) does not exist; 74 the trial was stopped, its save has failed, and an
earlier checkpoint is there; 75 the trial was stopped and can be resumed; 126 or 127 the command cannot be executed or
does not exist; 130 the trial was canceled by Ctrl-C. run, trial resume and trial continue otherwise exit as the script
did, with 128 + N when signal N killed it.

Documentation: https://github.com/core-sdk/core-sdk/tree/main/docs"""


_CLI = "core_sdk._interfaces.cli"


class _Root(LazyGroup):
    # The help of a command is the first paragraph of its docstring, as a test holds: `--help` imports no command.
    lazy: ClassVar = {
        "run": Lazy(
            f"{_CLI}.running.run:run",
            "Start a training script as a new trial, and keep its output.",
            cls=CommandAfterDashes,
        ),
        "study": Lazy(f"{_CLI}.study.commands:app", "Studies: tries of changed code, judged against noise."),
        "try": Lazy(
            f"{_CLI}.study.trying:try_code",
            "Try the code of this directory as it is now, with several seeds, and show what it was worth.",
            cls=CommandAfterDashes,
        ),
        "wait": Lazy(
            f"{_CLI}.study.trying:wait",
            "Wait for tries, and print a line for each when it has ended.",
        ),
        "board": Lazy(
            f"{_CLI}.study.commands:board",
            "Show a study on one screen, in at most 2 KB: what is best, and a line for each try.",
        ),
        "keep": Lazy(
            f"{_CLI}.study.deciding:keep", "Keep a try: the next ones vary it. Warns where noise may explain its gain."
        ),
        "discard": Lazy(f"{_CLI}.study.deciding:discard", "Discard a try. Warns where it is better beyond noise."),
        "code": Lazy(
            f"{_CLI}.study.deciding:code",
            "Show which code a try has run: its commit, its digest, and its difference to that of the parent.",
        ),
        "submit": Lazy(
            f"{_CLI}.running.submit:submit",
            "Queue a training in the background, and start it again when it fails.",
            cls=CommandAfterDashes,
        ),
        "check-resume": Lazy(
            f"{_CLI}.running.check_resume:check_resume",
            "Check whether a training goes on exactly after a stop, a SIGTERM or kill -9.",
            cls=CommandAfterDashes,
        ),
        "check-wandb": Lazy(
            f"{_CLI}.exchange.check_wandb:check_wandb",
            "Name the lines of scripts that use what core_sdk.compat.wandb does not have, and say what to use instead.",
        ),
        "compare": Lazy(
            f"{_CLI}.compare:compare",
            "Show hyperparameters and last metrics of trials side by side, what differs first.",
            reads_homes=True,
        ),
        "export": Lazy(
            f"{_CLI}.exchange.commands:export",
            "Write the tables of `core-sdk sql` as Parquet files, in place of an earlier export's files.",
            reads_homes=True,
        ),
        "import": Lazy(
            f"{_CLI}.exchange.commands:import_runs",
            "Make trials of the runs of other trackers, with their curves, configurations and media.",
        ),
        "preview-search": Lazy(
            f"{_CLI}.experiment.preview_search:preview_search", "Show how many trials a search trains, and how far."
        ),
        "report": Lazy(
            f"{_CLI}.report:report",
            "Write an experiment into one HTML file: its charts, trials and media, what mattered, and its "
            "configuration.",
            reads_homes=True,
        ),
        "login": Lazy(
            f"{_CLI}.workspace.commands:login",
            "Keep your token for a workspace on a server, which `core-sdk push` and `init(workspace=…)` then use.",
        ),
        "push": Lazy(
            f"{_CLI}.workspace.commands:push",
            "Send trials to a workspace on a server: all of the home, or those that are named.",
        ),
        "sql": Lazy(
            f"{_CLI}.exchange.commands:sql",
            "Ask a question in SQL over the tables experiments, trials, hparams, metrics and checkpoints.",
            reads_homes=True,
        ),
        "ui": Lazy(f"{_CLI}.ui:ui", "Show the home in a web browser, until Ctrl-C.", reads_homes=True),
        "server": Lazy(
            f"{_CLI}.lab.commands:app", "A server for a lab: many homes and people at one address, with roles."
        ),
        "mcp": Lazy(
            f"{_CLI}.agents:mcp",
            "Serve the home's trials over stdin and stdout, by the Model Context Protocol, until the client closes "
            "them.",
        ),
        "trial": Lazy(f"{_CLI}.trial.commands:app", "(t) Trials: one training with one set of hyperparameters."),
        "checkpoint": Lazy(f"{_CLI}.checkpoint.commands:app", "(c) Checkpoints: files and metadata under one id."),
        "experiment": Lazy(
            f"{_CLI}.experiment.commands:app", "(e) Experiments: trials that share a configuration, or a name."
        ),
        "model": Lazy(f"{_CLI}.model.commands:app", "(m) Models: checkpoints that are kept under a name and a number."),
        "master": Lazy(f"{_CLI}.master.commands:app", "The master: the process that runs a home's experiments."),
        "night": Lazy(
            f"{_CLI}.notify.night:night",
            "Show what has happened since you last looked, in at most 2 KB: what failed, hangs, went back, ended, was "
            "best.",
        ),
        "notify": Lazy(
            f"{_CLI}.notify.commands:app", "Messages: who is told of failed, stalled and ended trials, and how."
        ),
        "slot": Lazy(f"{_CLI}.master.commands:slot_app", "Slots: the GPUs, or places on the CPU, that trials run on."),
        "queue": Lazy(f"{_CLI}.master.commands:queue_app", "The queue: which experiment gets slots next."),
        "skill": Lazy(f"{_CLI}.agents:skill_app", "A page for coding agents: how to use these commands."),
        "home": Lazy(f"{_CLI}.home.commands:app", "The home: the folder that holds all records."),
        "index": Lazy(
            f"{_CLI}.home.commands:index_app", "The index: a database that answers faster than the journals."
        ),
    }
    _FIRST = ("trial", "experiment", "master")

    def _meant(self, ctx: Any, typed: str) -> str | None:
        """Returns the command that is meant, also one of a group that was left out."""
        words = [(name, word) for name in self._FIRST for word in (typed, *MEANT.get(typed, ()))]
        of_groups = [f"{name} {word}" for name, word in words if self.get_command(ctx, name).get_command(ctx, word)]
        of_trials = [each for each in of_groups if each.startswith("trial ")]
        return next(iter(of_trials), None) or super()._meant(ctx, typed) or next(iter(of_groups), None)

    short_forms: ClassVar = {"t": "trial", "c": "checkpoint", "e": "experiment", "m": "model", "job": "queue"}


def _print_version(is_asked: bool) -> None:
    if is_asked:
        click.echo(f"core-sdk {__version__}")
        raise click.exceptions.Exit


def _show_completion(is_asked: bool) -> None:
    if is_asked:
        from core_sdk._interfaces.cli._completion import show_completion

        show_completion()
        raise click.exceptions.Exit


def _install_completion(is_asked: bool) -> None:
    if is_asked:
        from core_sdk._interfaces.cli._completion import install_completion

        install_completion()
        raise click.exceptions.Exit


def _options(
    workspace: Annotated[
        str,
        Option(
            "--workspace",
            metavar="NAME",
            help="List and show what is in a workspace on a server: the name of a login, or an address.",
            show_default="the home",
        ),
    ] = "",
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    install: Annotated[
        bool,
        Option(
            "--install-completion",
            callback=_install_completion,
            is_eager=True,
            help="Install completion for your shell.",
        ),
    ] = False,
    show: Annotated[
        bool,
        Option(
            "--show-completion",
            callback=_show_completion,
            is_eager=True,
            help="Print what completes in your shell, to install it by hand.",
        ),
    ] = False,
) -> None: ...


app = command_group(
    "Runs training scripts, and shows, continues and removes what they recorded in the home (CORE_SDK_HOME).",
    epilog=_EPILOG,
    cls=_Root,
    options=_options,
)
