"""Ranks find what torchrun would tell them, and what they record for it is used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from launches import RunLaunch


def test_ranks_are_told_of_the_error_file_and_the_handled_signals(run_launch: RunLaunch) -> None:
    """Each rank finds its own error file and the signals to handle, as under torchrun."""
    source = """
        import os
        print(os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"], len(os.environ["TORCHELASTIC_ERROR_FILE"]) > 0)
        print(os.path.isdir(os.path.dirname(os.environ["TORCHELASTIC_ERROR_FILE"])))
    """

    ended = run_launch(source)

    assert ended.stdout.count("SIGTERM,SIGINT,SIGHUP,SIGQUIT True") == 2
    assert ended.stdout.count("] True") == 2


@pytest.mark.parametrize("options", [(), ("--log-dir", "logs")])
def test_the_file_that_torchruns_caller_has_named_gets_the_exception(
    run_launch: RunLaunch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """The exception of the rank that failed first is copied to the launcher's own error file, as torchrun does."""
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    source = """
        import os
        from torch.distributed.elastic.multiprocessing.errors import record

        @record
        def main():
            if os.environ["RANK"] == "1":
                raise ValueError("a bad value")

        main()
    """

    run_launch(source, overrides=options)

    message = json.loads((tmp_path / "error.json").read_text())["message"]
    assert (message["message"], message["errorCode"]) == ("ValueError: a bad value", 1)


def test_an_exception_that_torchs_record_has_written_is_the_cause(run_launch: RunLaunch) -> None:
    """An exception that torch's record() wrote is the cause, even without output on stderr."""
    source = """
        import os
        from torch.distributed.elastic.multiprocessing.errors import record

        @record
        def main():
            if os.environ["RANK"] == "1":
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                raise ValueError("a bad value")

        main()
    """

    failure = run_launch(source).failure

    assert (failure.rank, failure.cause, failure.code) == (1, "raised ValueError: a bad value", 1)
