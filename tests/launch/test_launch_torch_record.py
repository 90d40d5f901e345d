"""Ranks find what torchrun would tell them, and what they record for it is used."""

from __future__ import annotations

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
