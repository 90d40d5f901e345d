"""Which rank failed first, of what, and with which code: the launcher's last words and its exit status."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from launches import Ended, RunLaunch, WarmLaunchers, kill_all_in

_NUM_AT_ONCE = 6

# The failing rank is number 1 of 2, and the other one waits, unless a case says otherwise.
_PROLOGUE = """\
import os, signal, subprocess, sys, threading, time
rank = int(os.environ["RANK"])
def wait():
    time.sleep(120)
"""


@dataclass(frozen=True)
class Case:
    name: str
    fails: str
    code: int
    cause: str
    """A regular expression for all of it."""
    waits: str = "wait()"
    rank: int = 1
    num_ranks: int = 2
    stderr: str = ""
    """In what is shown of the rank's stderr."""

    @property
    def source(self) -> str:
        return f"{_PROLOGUE}if rank == {self.rank}:\n{_indented(self.fails)}\nelse:\n{_indented(self.waits)}\n"


def _indented(body: str) -> str:
    return "\n".join(f"    {line}" for line in body.splitlines())


def _by_signal(name: str, number: int, fails: str, words: str) -> Case:
    return Case(name, fails, 128 + number, f"was killed by {words}")


_AWAIT_FAILURE = "while not os.path.exists('failing'): time.sleep(0.01)"

CASES = [
    Case("an exception", "raise ValueError('boom')", 1, "raised ValueError: boom", stderr="in <module>"),
    Case(
        "an exception of a class of its own",
        "class MyError(Exception): ...\nraise MyError",
        1,
        "raised (__main__.)?MyError",
    ),
    Case(
        "a chain of exceptions",
        "try: 1 / 0\nexcept ZeroDivisionError as e: raise OSError('late') from e",
        1,
        "raised OSError: late",
    ),
    Case("a failed assertion", "assert rank == 0, 'wrong rank'", 1, "raised AssertionError: wrong rank"),
    Case("sys.exit(1)", "sys.exit(1)", 1, "exited with status 1"),
    Case("sys.exit(2)", "sys.exit(2)", 2, "exited with status 2"),
    Case("sys.exit(17)", "sys.exit(17)", 17, "exited with status 17"),
    Case("sys.exit(255)", "sys.exit(255)", 255, "exited with status 255.*"),
    Case("sys.exit(-1)", "sys.exit(-1)", 255, "exited with status 255.*"),
    Case("sys.exit with words", "sys.exit('no data')", 1, "exited with status 1", stderr="no data"),
    Case("os._exit", "os._exit(42)", 42, "exited with status 42"),
    Case(
        "a status as of a shell",
        "os._exit(139)",
        139,
        r"exited with status 139 \(as a shell reports death by SIGSEGV\)",
    ),
    _by_signal("abort", 6, "os.abort()", r"SIGABRT \(Aborted\)"),
    _by_signal("a segmentation fault", 11, "import ctypes; ctypes.string_at(0)", r"SIGSEGV \(Segmentation fault\)"),
    _by_signal("SIGKILL", 9, "os.kill(os.getpid(), 9)", "SIGKILL: perhaps by the kernel, for memory"),
    _by_signal("SIGTERM", 15, "os.kill(os.getpid(), 15)", r"SIGTERM \(Terminated\)"),
    _by_signal("SIGINT", 2, "os.kill(os.getpid(), 2); wait()", r"SIGINT \(Interrupt\)"),
    _by_signal("KeyboardInterrupt", 2, "raise KeyboardInterrupt", r"SIGINT \(Interrupt\)"),
    _by_signal("an arithmetic error", 8, "os.kill(os.getpid(), 8)", r"SIGFPE \(Floating point exception\)"),
    Case("an import error", "import no_such_module", 1, "raised ModuleNotFoundError: No module named 'no_such_module'"),
    Case("a missing file", "open('no_such_file')", 1, "raised FileNotFoundError: .*no_such_file.*"),
    Case("no memory", "bytearray(1 << 62)", 1, "raised MemoryError"),
    Case("no end of recursion", "def f(): f()\nf()", 1, "raised RecursionError: maximum recursion.*"),
    Case(
        "an exception in a thread, then an exit",
        "t = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join(); sys.exit(3)",
        3,
        "exited with status 3",
        stderr="ZeroDivisionError",
    ),
    Case("a failure at exit", "import atexit; atexit.register(os._exit, 9)", 9, "exited with status 9"),
    Case(
        "an exception after a megabyte without an end of line",
        "sys.stderr.write('x' * (1 << 20)); raise ValueError('late')",
        1,
        "raised ValueError: late",
    ),
    Case(
        "an exception after a megabyte on stdout",
        "sys.stdout.write('x' * (1 << 20)); raise ValueError('late')",
        1,
        "raised ValueError: late",
    ),
    Case(
        "an exception whose words are not UTF-8",
        "sys.stderr.buffer.write(b'Traceback (most recent call last):\\n  here\\nValueError: \\xff\\xfe\\n')\n"
        "os._exit(1)",
        1,
        "raised ValueError: \ufffd\ufffd",
    ),
    Case(
        "an exception with colours and bells",
        "raise ValueError('\\033[31mred\\a')",
        1,
        "raised ValueError: \ufffd\\[31mred\ufffd",
    ),
    Case("rank 0", "raise ValueError('boom')", 1, "raised ValueError: boom", rank=0),
    Case("the last of four", "sys.exit(4)", 4, "exited with status 4", rank=3, num_ranks=4),
    Case("the only rank", "sys.exit(5)", 5, "exited with status 5", rank=0, num_ranks=1),
    Case("while the other ends well", "time.sleep(0.5); sys.exit(6)", 6, "exited with status 6", waits="pass"),
    Case(
        "while the other holds out against SIGTERM",
        "while not os.path.exists('deaf'): time.sleep(0.01)\nsys.exit(7)",
        7,
        "exited with status 7",
        waits="signal.signal(signal.SIGTERM, signal.SIG_IGN); open('deaf', 'w').close(); wait()",
    ),
    Case(
        "while the other has a child",
        "while not os.path.exists('child'): time.sleep(0.01)\nsys.exit(8)",
        8,
        "exited with status 8",
        waits="child = subprocess.Popen(['sleep', '120']); open('child', 'w').close(); child.wait()",
    ),
    Case(
        "while the other is stopped",
        "while not os.path.exists('stopping'): time.sleep(0.01)\nsys.exit(9)",
        9,
        "exited with status 9",
        waits="open('stopping', 'w').close(); os.kill(os.getpid(), signal.SIGSTOP)",
    ),
    Case(
        "before the other suffers from it",
        "print('Traceback (most recent call last):\\n  here\\nValueError: root', file=sys.stderr)\n"
        "open('failing', 'w').close(); time.sleep(1); os._exit(1)",
        1,
        "raised ValueError: root",
        waits=f"{_AWAIT_FAILURE}\nraise RuntimeError('gloo: Connection closed by peer')",
    ),
    Case(
        "sys.exit(17), slower than the other suffers from it",
        "open('failing', 'w').close(); time.sleep(1); os._exit(17)",
        17,
        "exited with status 17",
        waits=f"{_AWAIT_FAILURE}\nraise RuntimeError('gloo: Connection closed by peer')",
    ),
    Case(
        "an exception that its threads outlive",
        "threading.Thread(target=wait).start(); open('failing', 'w').close(); raise ValueError('root')",
        1,
        "raised ValueError: root, and did not end",
        waits=f"{_AWAIT_FAILURE}\ntime.sleep(0.3); raise RuntimeError('gloo: Connection closed by peer')",
    ),
]


@pytest.fixture(scope="module")
def endings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, warm_launchers: WarmLaunchers
) -> Iterator[dict[str, Ended]]:
    """Runs all chosen cases concurrently and yields their endings by name."""
    directory = tmp_path_factory.mktemp("cases")
    calls = (getattr(item, "callspec", None) for item in request.session.items)
    chosen = {call.params["case"] for call in calls if call is not None and isinstance(call.params.get("case"), Case)}

    def run(case: Case) -> Ended:
        place = directory / re.sub(r"\W", "-", case.name)
        return warm_launchers.start(place, case.source, (), case.num_ranks, ()).wait()

    with ThreadPoolExecutor(_NUM_AT_ONCE) as pool:
        yield dict(zip([case.name for case in chosen], pool.map(run, chosen), strict=True))
    kill_all_in(directory)


@pytest.mark.parametrize("case", CASES, ids=lambda case: re.sub(r"\W+", "-", case.name))
def test_the_first_failing_rank_is_named_with_its_cause_and_code(case: Case, endings: dict[str, Ended]) -> None:
    """The first failing rank is named with its cause and code, without Core SDK or torch in the script."""
    ended = endings[case.name]

    failure = ended.failure

    assert (failure.rank, failure.code, ended.code) == (case.rank, case.code, case.code)
    assert re.fullmatch(case.cause, failure.cause)
    assert case.stderr in failure.stderr
    assert "ChildFailedError" not in ended.stderr
    assert "OMP_NUM_THREADS" not in ended.stderr


def test_a_syntax_error_is_a_failure_of_the_first_rank_to_meet_it(run_launch: RunLaunch) -> None:
    """A syntax error is reported as the failure of rank 0, although Python prints no traceback."""
    ended = run_launch("def f(:\n    pass\n", num_ranks=1)

    assert (ended.failure.rank, ended.code) == (0, 1)
    assert ended.failure.cause.startswith("raised SyntaxError: ")


def test_a_full_disk_is_told_by_the_ranks_own_error(run_launch: RunLaunch, small_disk: Path) -> None:
    """If the script's disk is full, the failure is the rank's own OSError."""
    source = _PROLOGUE + f"if rank == 0: wait()\nopen({str(small_disk / 'file')!r}, 'wb').write(bytes(1 << 22))"

    ended = run_launch(source)

    assert (ended.failure.rank, ended.code) == (1, 1)
    assert ended.failure.cause == "raised OSError: [Errno 28] No space left on device"


def test_the_end_of_stderr_is_shown_with_the_traceback(run_launch: RunLaunch) -> None:
    """The failure shows at most forty lines of stderr and always the traceback."""
    source = """
        import os, sys
        print("\\n".join(f"before {n}" for n in range(100)), file=sys.stderr)
        try:
            raise ValueError("boom")
        except ValueError:
            import traceback
            traceback.print_exc()
        print("\\n".join(f"after {n}" for n in range(100)), file=sys.stderr)
        sys.exit(3)
    """

    shown = run_launch(source, num_ranks=1).failure.stderr.splitlines()

    assert "ValueError: boom" in shown
    assert len(shown) <= 41  # with its title


def test_what_a_rank_wrote_last_comes_before_the_last_words(run_launch: RunLaunch) -> None:
    """All output of a rank comes before the launcher's last message."""
    source = """
        import os, sys
        for n in range(5000):
            print(n)
        sys.stderr.write("dying")
        os._exit(3)
    """

    ended = run_launch(source, num_ranks=1)

    assert ended.stdout.splitlines() == [f"[rank=0] {n}" for n in range(5000)]
    assert ended.stderr.startswith("[rank=0] dying\n[core-sdk] rank 0 of 1 failed first")


GLOO = """
    import os, sys
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(4))
    if dist.get_rank() == 1:
        {fails}
    dist.all_reduce(torch.ones(4))
"""


@pytest.mark.parametrize(
    ("fails", "code", "cause"),
    [
        ("dist.destroy_process_group(); raise ValueError('boom')", 1, "raised ValueError: boom"),
        ("dist.destroy_process_group(); sys.exit(17)", 17, "exited with status 17"),
        ("os.kill(os.getpid(), 9)", 137, "was killed by SIGKILL: perhaps by the kernel, for memory"),
    ],
)
def test_a_rank_that_loses_its_peer_in_a_collective_is_not_to_blame(
    fails: str, code: int, cause: str, run_launch: RunLaunch
) -> None:
    """gloo tells rank 0 of the broken connection while rank 1 may still be on its way out."""
    ended = run_launch(GLOO.replace("{fails}", fails))

    assert (ended.failure.rank, ended.code, ended.failure.cause) == (1, code, cause)


def test_a_program_that_is_no_python_script_is_judged_likewise(run_launch: RunLaunch, tmp_path: Path) -> None:
    """A program that is not a Python script is judged in the same way."""
    program = tmp_path / "train.sh"
    program.write_text('#!/bin/sh\n[ "$RANK" = 1 ] && exit 21\nexec sleep 120\n')
    program.chmod(0o755)

    ended = run_launch("", overrides=["--", str(program)])

    assert (ended.failure.rank, ended.code, ended.failure.cause) == (1, 21, "exited with status 21")


def test_the_real_launcher_does_as_the_warm_one(tmp_path: Path) -> None:
    """`python -m launch.torch_distributed` gives the same result as the warm launcher."""
    import subprocess

    (tmp_path / "train.py").write_text("import os, sys; sys.exit(17 if os.environ['RANK'] == '1' else 0)")
    command = [sys.executable, "-m", "launch.torch_distributed", "--nproc-per-node=2", "--", "train.py"]

    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert ended.returncode == 17
    assert ended.stderr.startswith("[core-sdk] rank 1 of 2 failed first")
