"""What is mistyped, or given in vain, is refused with words that say what there is."""

from __future__ import annotations

from typing import Any

from interfaces.cli.commands import Cli
from interfaces.cli.recorded import new_attempt, new_trial, store

from core_sdk._ground.records import Profile
from core_sdk._home import Home
from core_sdk._interfaces.cli._app import app


def two_groups(home: Home) -> None:
    """Makes trial 1, with a report of two groups."""
    training = new_attempt(new_trial(home))
    training.report(1, loss=0.5)
    training.report(1, "validation", loss=0.6)
    training.end()


def test_a_group_that_nobody_reported_is_refused(home: Home, cli: Cli) -> None:
    """An unknown group is refused in every form of output, with the names of the known ones."""
    two_groups(home)

    for arguments in ((), ("--json",), ("--csv",), ("--plot",), ("--superseded",)):
        refused = cli("trial", "metrics", "1", "--group", "trainig", *arguments)

        assert (refused.status, refused.output) == (3, ""), arguments
        assert "no reports of a group 'trainig'" in refused.errors
        assert "Its groups: training, validation." in refused.errors
    assert cli("trial", "metrics", "1", "--group", "training").status == 0


def test_a_group_without_numbers_is_not_plotted(home: Home, cli: Cli) -> None:
    """A group without numbers over steps is refused by --plot but listed among the groups."""
    training = new_attempt(new_trial(home))
    training.report(1, loss=0.5)
    training.append(Profile(time=1.0, group="cpu", metrics={"cpu_util": 5.0}))
    training.end()

    plotted = cli("trial", "metrics", "1", "--group", "cpu", "--plot")
    mistyped = cli("trial", "metrics", "1", "--group", "cup", "--plot")

    assert (plotted.status, plotted.output) == (1, "")
    assert "group 'cpu' of trial 1 has no numbers over steps to plot" in plotted.errors
    assert "Its groups: training, cpu." in mistyped.errors


def test_a_trial_without_reports_is_no_refusal(home: Home, cli: Cli) -> None:
    """A trial without reports yet is no error."""
    new_attempt(new_trial(home)).end()

    assert cli("trial", "metrics", "1").output == "No reports yet.\n"
    assert cli("trial", "metrics", "1", "--json").output == "[]\n"
    assert "Its groups: none yet." in cli("trial", "metrics", "1", "--group", "training").errors


def test_an_option_that_would_have_no_effect_is_refused(home: Home, cli: Cli) -> None:
    """Combinations of options of which one would have no effect are refused."""
    two_groups(home)

    for arguments in (("--plot", "--json"), ("--plot", "--csv"), ("--plot", "--last", "3"), ("--plot", "--superseded")):
        assert cli("trial", "metrics", "1", *arguments).status == 2, arguments
    for arguments in (("--json", "--last", "3"), ("--csv", "--last", "3")):
        refused = cli("trial", "metrics", "1", *arguments)
        assert (refused.status, refused.output) == (2, "")
        assert "--last is for tables" in refused.errors
    assert cli("trial", "metrics", "1", "--last", "3").status == 0


def test_output_that_cannot_be_there_is_refused(home: Home, cli: Cli) -> None:
    """Logs of an unknown attempt or of a rank without output are refused."""
    training = new_attempt(new_trial(home))
    training.folder.log_path(1).write_text("[rank=0] a\n[rank=2] b\n")
    training.end()

    no_attempt = cli("trial", "logs", "1", "--attempt", "7")
    no_rank = cli("trial", "logs", "1", "--rank", "0", "--rank", "5", "--follow")

    assert (no_attempt.status, no_attempt.output) == (3, "")
    assert "trial 1 has no attempt 7. Its attempts: 1." in no_attempt.errors
    assert (no_rank.status, no_rank.output) == (1, "")
    assert "rank 5 of trial 1 has written nothing. Ranks with output: 0, 2." in no_rank.errors
    assert cli("trial", "logs", "1", "--rank", "2").output == "b\n"


def test_a_trial_of_another_experiment_is_refused(home: Home, cli: Cli) -> None:
    """A trial that does not belong to the given experiment is refused."""
    new_attempt(new_trial(home, experiment="digits")).end()
    new_attempt(new_trial(home, experiment="letters")).end()

    for command in (("list",), ("verify", "--all"), ("gc", "--save-trial-latest", "1", "--metric", "loss")):
        refused = cli("checkpoint", *command, "--trial", "1", "--experiment", "letters")
        assert refused.status == 2
        assert "trial 1 does not belong to experiment letters" in refused.errors
        assert cli("checkpoint", *command, "--trial", "1", "--experiment", "digits").status == 0


def test_a_label_that_is_refused_changes_nothing(home: Home, cli: Cli) -> None:
    """If one label is bad, none is added."""
    new_attempt(new_trial(home, experiment="digits")).end()

    refused = cli("experiment", "label", "digits", "good", "")

    assert (refused.status, refused.output) == (2, "")
    assert home.experiment(1).read().labels == []


def test_a_pattern_that_matches_nothing_is_told(home: Home, cli: Cli) -> None:
    """A pattern without a match is an error, so that nobody believes that files were deleted."""
    training = new_attempt(new_trial(home))
    store(training, "first", 10)
    training.end()

    missed = cli("checkpoint", "delete", "first", "--glob", "wieghts*", "--yes")
    unpinned = cli("checkpoint", "unpin", "first")

    assert missed.status == 1
    assert "nothing in checkpoint first matches wieghts*" in missed.errors
    assert unpinned.output == "not pinned: checkpoint first\n"


def test_the_files_of_a_checkpoint_stand_in_lines(home: Home, cli: Cli) -> None:
    """The files of a checkpoint are listed on lines of their own."""
    training = new_attempt(new_trial(home))
    store(training, "first", 10)
    training.end()

    described = cli("checkpoint", "describe", "first")

    lines = [line.split() for line in described.output.splitlines()]
    assert lines[-2][0] == "Files"
    assert [line[-3] for line in lines[-2:]] == ["metadata.json", "weights.bin"]
    assert "\\n" not in described.output


def test_an_error_of_the_system_is_told_without_its_number(home: Home, cli: Cli) -> None:
    """A system error is shown as the path and the reason, without its number."""
    training = new_attempt(new_trial(home))
    store(training, "first", 10)
    training.end()

    refused = cli("checkpoint", "download", "first", "/proc/first")

    assert refused.status == 1
    assert refused.errors == "core-sdk: /proc/first: No such file or directory\n"


def test_the_help_of_commands_is_that_of_their_functions() -> None:
    """What the table of commands says of one is the first paragraph of its docstring."""
    of_groups = {name for name, lazy in app.lazy.items() if lazy.at.endswith("app")}  # type: ignore[attr-defined]
    for name, lazy in app.lazy.items():  # type: ignore[attr-defined]
        if name not in of_groups:
            told = app.get_command(None, name).help.partition("\n\n")[0]
            assert lazy.help == " ".join(told.split()), name


def test_the_help_cuts_no_sentence(cli: Cli) -> None:
    """Each command's first paragraph stands in its group's help, on a terminal of 80 columns."""
    root: Any = app

    commands = {(name,): root.get_command(None, name) for name in root.list_commands(None)}
    groups = {path: command for path, command in commands.items() if hasattr(command, "commands")}
    for path, group in {(): root, **groups}.items():
        shown = " ".join(cli(*path, "--help", COLUMNS="80").output.split())
        assert "..." not in shown.partition("Commands:")[2]
        for name in group.list_commands(None):
            command = group.get_command(None, name)
            assert " ".join(command.help.partition("\n\n")[0].split()) in shown
