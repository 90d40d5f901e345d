"""Who failed first, by rules over values: no process is started here."""

from __future__ import annotations

import traceback

import pytest

from core_sdk._machine.processes._causes import FailureKind, RankSeen, first_failure, kind_of, may_change
from core_sdk._machine.processes._failure_text import cause_of, excerpt, exit_code, place_of_stack
from core_sdk._machine.processes._guardian_process import sessions_left
from core_sdk._machine.processes._outcomes import Failed, Obeyed, Succeeded, judge
from core_sdk.errors import RankFailedError

TERM = 15
LOST_PEER = b"""Traceback (most recent call last):
  File "train.py", line 3, in <module>
RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:55728. GLHF!
"""
OWN = b'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: boom\n'


def _ended(rank: int, code: int, ended_s: float, traceback_s: float | None = None, stderr: bytes = b"") -> RankSeen:
    return RankSeen(rank, 100 + rank, code, ended_s, traceback_s, stderr)


def _running(rank: int, traceback_s: float | None = None, stderr: bytes = b"") -> RankSeen:
    return RankSeen(rank, 100 + rank, None, float("inf"), traceback_s, stderr)


def _first(*ranks: RankSeen, stops: tuple[int, ...] = ()) -> int | None:
    first = first_failure(ranks, stops)
    return None if first is None else first.rank


def test_ranks_that_run_or_ended_well_have_not_failed() -> None:
    """Ranks that run or have ended well are not the first failure."""
    first = _first(_running(0), _ended(1, 0, 1.0))

    assert first is None


def test_a_rank_that_quotes_anothers_traceback_suffered() -> None:
    """A rank that quotes another rank's traceback is judged by its own last error, a consequence."""
    error = RankFailedError(1, "SystemExit: 17", OWN.decode())
    printed = "Traceback (most recent call last):\n" + "".join(traceback.format_exception_only(error))

    assert kind_of(_ended(0, 1, 1.0, stderr=printed.encode())) is FailureKind.CONSEQUENCE


def test_the_first_to_die_has_failed_first() -> None:
    """Without other evidence, the rank that ended first has failed first."""
    first = _first(_ended(0, 3, 2.0), _ended(1, 4, 1.0))

    assert first == 1


def test_an_exception_is_older_than_the_exit_in_which_it_ends() -> None:
    """A rank's failure is dated by its exception and not by its later exit."""
    first = _first(_ended(0, 1, 9.0, 1.0, OWN), _ended(1, 3, 2.0))

    assert first == 0


def test_a_traceback_that_was_handled_does_not_make_a_later_signal_older() -> None:
    """A handled traceback does not date a later death by signal."""
    first = _first(_ended(0, -11, 9.0, 1.0, OWN), _ended(1, 3, 2.0))

    assert first == 1


def test_who_lost_its_peer_comes_after_the_peer() -> None:
    """A rank that lost its peer is not the first failure, even if it ended earlier."""
    first = _first(_ended(0, 1, 1.0, 1.0, LOST_PEER), _ended(1, 17, 2.5))

    assert first == 1


def test_who_lost_its_peer_is_named_where_nobody_else_failed() -> None:
    """A rank that lost its peer is named if no other rank failed here."""
    first = _first(_ended(0, 1, 1.0, 1.0, LOST_PEER), _ended(1, 0, 0.5))

    assert first == 0


def test_who_died_of_the_signal_that_was_handed_on_comes_after_real_failures() -> None:
    """A death by the forwarded signal comes after real failures and before lost peers."""
    lost, obeyed, failed = _ended(0, 1, 1.0, 1.0, LOST_PEER), _ended(1, -TERM, 2.0), _ended(2, 1, 3.0, 3.0, OWN)

    order = [_first(lost, obeyed, failed, stops=(TERM,)), _first(lost, obeyed, stops=(TERM,))]

    assert order == [2, 1]


@pytest.mark.parametrize(
    "stderr",
    [
        LOST_PEER,
        b"RuntimeError: [third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error: Connection reset by peer.",
        b"torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
        b"[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7) ran for 600000 ms",
        b"torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
        b"core_sdk.errors.RankDiedError: rank 1 died",
        b"[rank0]: core_sdk.errors.RankFailedError: rank 1 failed",
        b"core_sdk.errors.RankLeftError: rank 1 left",
        b"horovod.common.exceptions.HorovodInternalError: shut down",
    ],
)
def test_what_tells_of_a_lost_peer_is_a_consequence(stderr: bytes) -> None:
    """Errors of gloo, NCCL, torch's store, Horovod and Core SDK about lost peers are consequences."""
    kind = kind_of(_ended(0, 1, 1.0, None, stderr))

    assert kind is FailureKind.CONSEQUENCE


@pytest.mark.parametrize(
    "stderr",
    [
        b"ConnectionResetError: [Errno 104] Connection reset by peer",
        b"requests.exceptions.ConnectionError: Connection refused",
        b"MyRankDiedError: mine",
        LOST_PEER + b"that was handled\n" + OWN,
        b"NCCL version 2.21\nValueError: boom",
    ],
)
def test_a_scripts_own_errors_are_causes(stderr: bytes) -> None:
    """A script's own errors are causes, also lost connections to other services."""
    kind = kind_of(_ended(0, 1, 1.0, None, stderr))

    assert kind is FailureKind.CAUSE


def test_a_consequence_may_find_its_cause_while_others_run() -> None:
    """While other ranks run, a consequence may still find its cause."""
    lost = _ended(0, 1, 1.0, 1.0, LOST_PEER)

    answers = [may_change([lost, _running(1)]), may_change([lost, _ended(1, 0, 2.0)])]

    assert answers == [True, False]


def test_a_rank_on_its_way_out_may_have_failed_before_one_that_is_dead() -> None:
    """A running rank whose traceback was just logged may have failed before a dead one; an old traceback is ignored."""
    dead = _ended(0, 3, 50.0)

    answers = [may_change([dead, _running(1, 49.5, OWN)]), may_change([dead, _running(1, 1.0, OWN)])]

    assert answers == [True, False]


def test_wrappers_that_died_of_the_stop_of_a_training_have_not_failed() -> None:
    """A wrapper that died of the stop has not failed, unless the training inside it raised afterwards."""
    stopped, failed = _ended(0, -TERM, 1.0, 0.5, OWN), _ended(1, -TERM, 1.0, 2.0, OWN)

    outcomes = [judge(ranks, (TERM,), has_patience=True, has_said_stopped=True) for ranks in ([stopped], [failed])]

    assert outcomes == [Succeeded(was_stopped=True), Obeyed(TERM, (1,))]


def test_a_failure_is_judged_at_once_if_nothing_can_change_it() -> None:
    """A failure with a known cause is judged at once, while other ranks run."""
    failed = _ended(1, 17, 1.0)

    outcome = judge([_running(0), failed], (), has_patience=True)

    assert outcome == Failed(failed)


def test_a_rank_that_raised_and_does_not_end_is_blamed_by_those_it_left() -> None:
    """A rank that raised but does not end is the failure that its peers' errors point to."""
    stuck, lost = _running(1, 0.9, OWN), _ended(0, 1, 1.0, 1.0, LOST_PEER)

    outcomes = [judge([lost, stuck], (), has_patience=patience) for patience in (True, False)]

    assert outcomes == [None, Failed(stuck)]


def test_who_died_of_a_stop_does_not_take_the_grace_from_others() -> None:
    """A death by the stop does not end the grace of other ranks, until they fail too."""
    obeyed, lost = _ended(0, -TERM, 1.0), _ended(1, 1, 2.0, 2.0, LOST_PEER)

    outcomes = [
        judge([obeyed, _running(1)], (TERM,), has_patience=False),
        judge([obeyed, lost, _running(2)], (TERM,), has_patience=False),
        judge([obeyed, _ended(1, 0, 2.0)], (TERM,), has_patience=True),
    ]

    assert outcomes == [None, Obeyed(TERM, (0,)), Obeyed(TERM, (0,))]


def test_another_node_is_given_time_to_tell_its_failure() -> None:
    """If all failed ranks here lost their peers, other nodes get time to report a failure."""
    lost = _ended(0, 1, 1.0, 1.0, LOST_PEER)

    outcomes = [judge([lost], (), has_patience=patience, is_alone=False) for patience in (True, False)]

    assert outcomes == [None, Failed(lost)]


@pytest.mark.parametrize(
    ("code", "stderr", "cause"),
    [
        (1, OWN, "raised ValueError: boom"),
        (1, OWN.replace(b"\n", b"\r\n"), "raised ValueError: boom"),
        (1, OWN + b"written at exit\n", "raised ValueError: boom"),
        (1, b"[rank1]: " + OWN.replace(b"\n", b"\n[rank1]: "), "raised ValueError: boom"),
        (1, b"progress 10%\rprogress 20%\r" + OWN, "raised ValueError: boom"),
        (
            1,
            b'  File "train.py", line 1\n    def (\nSyntaxError: invalid syntax\n',
            "raised SyntaxError: invalid syntax",
        ),
        (1, b"no data\n", "exited with status 1"),
        (2, b"python: can't open file 'x.py'\n", "could not be started: python: can't open file 'x.py'"),
        (130, b"", "exited with status 130 (as a shell reports death by SIGINT)"),
        (-11, b"", "was killed by SIGSEGV (Segmentation fault)"),
        (-9, b"", "was killed by SIGKILL: perhaps by the kernel, for memory"),
        (-40, b"", "was killed by signal 40 (Real-time signal 6)"),
        (
            -6,
            OWN + b"terminate called without an active exception\nFatal Python error: Aborted\n",
            "raised ValueError: boom, and then was killed by SIGABRT (Aborted)",
        ),
    ],
)
def test_the_cause_is_told_in_words(code: int, stderr: bytes, cause: str) -> None:
    """The cause is described by the exit and the end of stderr."""
    words = cause_of(_ended(1, code, 1.0, None, stderr))

    assert words == cause


def test_of_a_crash_the_thread_that_crashed_is_shown_and_the_line_of_the_script() -> None:
    """Of a crash, the excerpt shows the crashed thread and names the script's own line."""
    other = '  File "/usr/lib/python3.11/threading.py", line 331 in wait\n' * 30
    stack = [
        "Current thread 0x00007f48ed8a9b80 (most recent call first):",
        '  File "/v/lib/python3.11/site-packages/torch/distributed/c10d.py", line 3252 in all_reduce',
        '  File "/home/me/train.py", line 12 in save',
    ]
    crash = f"what(): gone\nFatal Python error: Aborted\n\nThread 0x7f (most recent call first):\n{other}\n"
    stderr = f"{crash}{chr(10).join(stack)}\n\nExtension modules: numpy (total: 1)\n".encode()

    assert excerpt(stderr) == ["what(): gone", "Fatal Python error: Aborted", *stack]
    assert place_of_stack(stderr) == "save (/home/me/train.py, line 12)"
    assert place_of_stack(b"nothing\n") is None


def test_the_excerpt_is_the_end_or_the_traceback_before_it() -> None:
    """The excerpt has at most forty lines and always includes the exception's own line."""
    deep = b"Traceback (most recent call last):\n" + b'  File "x"\n' * 100 + b"ValueError: boom\n"
    noise = b"".join(b"noise %d\n" % n for n in range(100))

    excerpts = [excerpt(noise), excerpt(noise + deep), excerpt(deep + noise), excerpt(OWN + b"bye\n"), excerpt(b"")]

    assert [len(lines) for lines in excerpts] == [40, 40, 40, 4, 0]
    assert [lines[-1] for lines in excerpts[:4]] == ["noise 99", "ValueError: boom", "ValueError: boom", "bye"]


def test_codes_are_those_of_a_shell() -> None:
    """A death by signal N gives the exit code 128 + N."""
    codes = [exit_code(code) for code in (0, 1, 255, -9, -15)]

    assert codes == [0, 1, 255, 137, 143]


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        (["+10\n", "+11\n", ".\n"], None),
        (["+10\n", "+11\n", "-10\n"], {11}),
        (["+10\n", "+1"], {10}),
        ([], set()),
    ],
)
def test_the_guardian_knows_the_ranks_that_a_dead_launcher_left(lines: list[str], left: set[int] | None) -> None:
    """The guardian knows the sessions that a dead launcher left, and ignores a partial line."""
    sessions = sessions_left(lines)

    assert sessions == left
