"""The seed of a trial that `core-sdk` starts: the command line's, or else the script's."""

from __future__ import annotations

import re
import sys

from interfaces.cli.commands import Cli, WriteScript

from core_sdk._home import Home

ON_RANKS = """
    import logging
    import torch
    from torch.utils.data import DataLoader
    from core_sdk import core, loop

    logging.basicConfig()
    with core.init(distributed=core.DistributedContext.from_torch_distributed(), seed=8) as context:
        seed = context.info.trial.trial_seed
        loop.seed_all(seed)
        loader = loop.resumable(DataLoader(range(8), shuffle=True))
        print("rank", context.distributed.rank, seed, loader.seed, torch.rand(1).item(), [int(each) for each in loader])
"""


def test_the_seed_of_the_command_line_has_precedence(home: Home, cli: Cli, write_script: WriteScript) -> None:
    """--seed overrides the script's seed, also in resumes and continuations, unless another is given."""
    script = write_script(
        """
        from core_sdk import core
        from core_sdk._ground.environment import trial_seed
        with core.init(seed=8) as context:
            print(context.info.trial.trial_seed, trial_seed())
            with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
                (path / "state").touch()
            raise OSError
        """
    )
    warning = "keeps the seed 7, which its search or the command line has chosen: the script's seed=8 is not used"

    run = cli("run", "--seed", "7", "--", sys.executable, str(script))
    resumed = cli("trial", "resume", "1")
    continued = cli("trial", "continue", "1")
    reseeded = cli("trial", "continue", "1", "--seed", "9")
    refused = [cli("run", f"--seed={bad}", "--", "true") for bad in ("-1", "2147483648", "x")]

    for each in (run, resumed, continued):
        assert "7 7\n" in each.output
        assert warning in each.output
    assert "9 9\n" in reseeded.output
    assert [home.trial(trial_id).read_record().seed for trial_id in home.trial_ids()] == [7, 7, 9]
    assert re.search(r"Seed +9\b", cli("trial", "describe", str(max(home.trial_ids()))).output)
    assert [each.status for each in refused] == [2, 2, 2]
    assert "--seed" in refused[0].errors


def test_without_an_option_the_seed_of_the_script_counts(home: Home, cli: Cli, write_script: WriteScript) -> None:
    """Without --seed, the script's seed is used by the trial and its loaders, also in a continuation."""
    script = write_script(
        """
        import sys
        from core_sdk import core, loop
        from torch.utils.data import DataLoader
        with core.init(seed=int(sys.argv[1])) as context:
            print(context.info.trial.trial_seed, loop.resumable(DataLoader(range(4))).seed)
            with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
                (path / "state").touch()
        """
    )

    run = cli("run", "--", sys.executable, str(script), "8")
    continued = cli("trial", "continue", "1", "--", sys.executable, str(script), "9")

    assert (run.output, continued.output) == ("8 8\n", "9 9\n")


def test_the_ranks_of_a_launcher_have_one_seed(cli: Cli, write_script: WriteScript) -> None:
    """All ranks have one seed, of the script or of the command line, and equal seeds give equal results."""
    script = write_script(ON_RANKS)
    launch = ["--", sys.executable, "-m", "launch.torch_distributed", "--nproc-per-node=2", "--", str(script)]

    first, second = cli("run", *launch), cli("run", *launch)
    given = cli("run", "--seed", "7", *launch)

    def ranks(output: str) -> list[list[str]]:
        found = (line.partition("rank ")[2].split(maxsplit=3) for line in output.splitlines())
        return sorted(words for words in found if len(words) == 4)

    assert ranks(first.output) == ranks(second.output)
    assert [words[:3] for words in ranks(first.output)] == [["0", "8", "8"], ["1", "8", "8"]]
    assert [words[:3] for words in ranks(given.output)] == [["0", "7", "7"], ["1", "7", "7"]]
    assert "the script's seed=8 is not used" in given.output
