"""The machine's figures are recorded during the training, and no failure of theirs reaches it."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from processes import Script, wait_for

from core_sdk._ground.records import Metric, Profile, metrics_from_json
from core_sdk._home.journal import JournalWriter, read_records
from core_sdk.core import ProfilerContext
from core_sdk.core._profiler import FigureSource
from core_sdk.errors import JournalError


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[JournalWriter]:
    journal = JournalWriter(tmp_path / "1.journal")
    yield journal
    journal.close()


@pytest.fixture
def profiler(journal: JournalWriter) -> Iterator[ProfilerContext]:
    profiler = ProfilerContext(journal, 0)
    yield profiler
    profiler.off()


class Counter:
    """A source that counts its samples: 1, 2, 3, …; it fails at `fails_at`, 0 being its start."""

    name = "the counter"
    group = "counted"

    def __init__(self, fails_at: int | None = None) -> None:
        self.num_samples = 0
        self._fails_at = fails_at

    def start(self) -> None:
        self._fail_at(0)

    def sample(self) -> Mapping[str, float]:
        self.num_samples += 1
        self._fail_at(self.num_samples)
        return {"samples": self.num_samples}

    def _fail_at(self, number: int) -> None:
        if number == self._fails_at:
            raise ZeroDivisionError("the driver divided by zero")


@dataclass
class Other:
    """A source that always returns the same value."""

    figure: float
    name: str = "the other"
    group: str = "other"

    def start(self) -> None: ...

    def sample(self) -> Mapping[str, float]:
        return {"figure": self.figure}


def profiler_of(journal: JournalWriter, *sources: FigureSource) -> ProfilerContext:
    return ProfilerContext(journal, 0, lambda: sources)


def recorded(journal: JournalWriter) -> dict[str, list[dict[str, Metric]]]:
    """Returns the recorded reports by group."""
    groups: dict[str, list[dict[str, Metric]]] = defaultdict(list)
    for record in read_records(journal.path):
        assert isinstance(record, Profile)
        groups[record.group].append(metrics_from_json(record.metrics))
    return groups


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "core-sdk-profiler"]


def test_the_figures_of_this_machine_are_recorded(journal: JournalWriter, profiler: ProfilerContext) -> None:
    """A report is one record per group with plausible values and the time of the report."""
    began = time.time()

    profiler.on(sampling_interval=0.1, samples_per_report=2)
    wait_for(lambda: len(recorded(journal)["process"]) == 2)
    profiler.off()

    figures = {name: value for reports in recorded(journal).values() for name, value in reports[0].items()}
    assert 0 <= figures["cpu_util_simple"] <= 100
    assert 0 < figures["memory_free"] <= psutil.virtual_memory().total
    assert 0 <= figures["disk_util./"] <= 100
    assert 1e6 < figures["process_rss"] < psutil.virtual_memory().total
    times = [record.time for record in read_records(journal.path)]
    assert all(began <= recorded_at <= time.time() for recorded_at in times)


def test_each_figure_has_its_group(journal: JournalWriter, profiler: ProfilerContext) -> None:
    """Figures are recorded in the groups that charts ask for."""
    profiler.on(sampling_interval=0.1, samples_per_report=1)
    wait_for(lambda: "process" in recorded(journal))
    profiler.off()

    groups = {group: set(reports[0]) for group, reports in recorded(journal).items()}
    assert groups["cpu"] == {"cpu_util_simple"}
    assert groups["memory"] == {"memory_free"}
    of_linux = {"process_read", "process_written", "workers_cpu_util", "compute"} if sys.platform == "linux" else set()
    assert groups["process"] == {"process_cpu_util", "process_rss", "data_wait"} | of_linux
    assert groups["network"] == {"net_throughput_sent", "net_throughput_recv"}
    assert groups["disk"] >= {"disk_util./"}
    if psutil.disk_io_counters() is not None:
        assert groups["disk"] >= {"disk_iops", "disk_throughput_read", "disk_throughput_write"}


def test_traffic_is_counted_per_second(journal: JournalWriter, profiler: ProfilerContext) -> None:
    """The network throughput rises while data is sent through the loopback interface, and falls again."""

    def latest_throughput() -> Metric:
        reports = recorded(journal)["network"]
        return reports[-1]["net_throughput_sent"] if reports else 0.0

    profiler.on(sampling_interval=0.1, samples_per_report=1)

    with traffic():
        wait_for(lambda: latest_throughput() > 1 << 20)

    wait_for(lambda: latest_throughput() < 1 << 18)


# Two GPUs, of which one is split and one breaks down, and one that cannot be opened.
FAKE_NVML = """
from types import SimpleNamespace
class NVMLError(Exception): pass
class NVMLError_NotSupported(NVMLError): pass
samples = 0
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 3
def nvmlDeviceGetHandleByIndex(index):
    if index == 2: raise NVMLError("GPU is lost")
    return index
def nvmlDeviceGetUUID(handle): return f"GPU-{handle}"
def nvmlDeviceGetUtilizationRates(handle):
    global samples
    samples += 1
    if handle == 1: raise NVMLError_NotSupported("is split")
    if samples > 5: raise NVMLError("GPU has fallen off the bus")
    return SimpleNamespace(gpu=50, memory=0)
def nvmlDeviceGetPowerUsage(handle): return only_of_first(handle, 412500)
def nvmlDeviceGetTemperature(handle, sensor): return only_of_first(handle, 68)
def nvmlDeviceGetCurrentClocksThrottleReasons(handle): return only_of_first(handle, 0x44)
NVML_TEMPERATURE_GPU = 0
def only_of_first(handle, value):
    if handle == 1: raise NVMLError_NotSupported("is split")
    return value
def nvmlDeviceGetMemoryInfo(handle): return SimpleNamespace(free=1 << 30, used=0, total=1 << 30)
"""


def test_each_gpu_tells_what_it_can(run_script: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    """Figures are named by the GPU's UUID, and a GPU that fails does not affect the others."""
    (tmp_path / "pynvml.py").write_text(FAKE_NVML)

    status, _, errors = run_script(
        """
        import logging, time
        from pathlib import Path
        from core_sdk.core import ProfilerContext
        from core_sdk._home.journal import JournalWriter
        logging.basicConfig(format="%(message)s")
        journal = JournalWriter(Path("1.journal"))
        profiler = ProfilerContext(journal, 0)
        profiler.on(sampling_interval=0.1, samples_per_report=1)
        while journal.path.read_text().count('"cpu"') < 6:
            time.sleep(0.01)
        profiler.off()
        """
    )

    records = read_records(tmp_path / "1.journal")
    reports = [record.metrics for record in records if isinstance(record, Profile) and record.group == "gpu"]
    assert status == 0
    assert reports[0] == {
        "gpu_util.GPU-0": 50.0,
        "gpu_free_memory.GPU-0": 2.0**30,
        "gpu_used_memory.GPU-0": 0.0,
        "gpu_power.GPU-0": 412.5,
        "gpu_temperature.GPU-0": 68.0,
        "gpu_throttled.GPU-0": 100.0,
        "gpu_free_memory.GPU-1": 2.0**30,
        "gpu_used_memory.GPU-1": 0.0,
    }
    assert set(reports[-1]) == {"gpu_free_memory.GPU-1", "gpu_used_memory.GPU-1"}
    assert errors.splitlines() == [
        "the profiler goes on without gpu 2: NVMLError: GPU is lost",
        "the profiler goes on without gpu 0: NVMLError: GPU has fallen off the bus",
    ]


def test_a_machine_without_a_driver_has_no_gpu_figures(
    run_script: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """On a machine without a GPU driver there are no GPU figures and no warning."""
    (tmp_path / "pynvml.py").write_text(FAKE_NVML.replace("def nvmlInit(): pass", "def nvmlInit(): raise NVMLError"))

    status, output, errors = run_script(
        """
        from pathlib import Path
        from core_sdk.core._profiler._machine import machine_sources
        print(sorted({source.group for source in machine_sources(Path("."))}))
        """
    )

    assert (status, errors) == (0, "")
    assert output == "['cpu', 'disk', 'memory', 'network', 'process']\n"


def test_a_report_is_the_mean_of_its_samples(journal: JournalWriter) -> None:
    """Each sample is part of exactly one report, which is the mean of its samples."""
    profiler = profiler_of(journal, Counter())

    profiler.on(sampling_interval=0.1, samples_per_report=3)
    wait_for(lambda: len(recorded(journal)["counted"]) == 2)
    profiler.off()

    assert recorded(journal)["counted"][:2] == [{"samples": 2.0}, {"samples": 5.0}]


def test_off_records_the_samples_so_far(journal: JournalWriter) -> None:
    """off() records the samples so far at once, without waiting for the next one."""
    counter = Counter()
    profiler = profiler_of(journal, counter)
    interval_s = 4
    profiler.on(sampling_interval=interval_s, samples_per_report=1_000_000)
    wait_for(lambda: counter.num_samples == 1)

    began = time.monotonic()
    profiler.off()

    assert time.monotonic() - began < interval_s
    assert recorded(journal) == {"counted": [{"samples": 1.0}]}
    assert threads() == []


def test_off_before_the_first_sample_records_nothing(journal: JournalWriter, profiler: ProfilerContext) -> None:
    """off() before the first sample records nothing."""
    profiler.on(sampling_interval=60)

    profiler.off()

    assert recorded(journal) == {}
    assert threads() == []


def test_on_and_off_may_be_repeated(journal: JournalWriter, caplog: pytest.LogCaptureFixture) -> None:
    """A second on() changes nothing and gives a warning; on() after off() starts a new thread."""
    profiler = profiler_of(journal, Counter())
    profiler.off()
    profiler.on(sampling_interval=60)
    first = threads()

    profiler.on(sampling_interval=60)
    second = threads()
    profiler.off()
    profiler.off()
    profiler.on(sampling_interval=60)
    third = threads()
    profiler.off()

    assert len(first) == len(third) == 1
    assert first == second != third
    assert third[0].daemon
    assert caplog.text.count("call profiler.off() first") == 1


def test_one_rank_per_node_collects(journal: JournalWriter) -> None:
    """Only the first rank of a node starts the profiler."""
    profiler = ProfilerContext(journal, 1)

    profiler.on()

    assert threads() == []
    profiler.off()


@pytest.mark.parametrize("interval", [0.09, 0, -1, math.nan, math.inf])
def test_an_interval_that_is_too_short_or_no_number_is_refused(profiler: ProfilerContext, interval: float) -> None:
    """An interval that is too short or not finite is refused, and the profiler stays off."""
    with pytest.raises(ValueError, match="sampling_interval"):
        profiler.on(sampling_interval=interval)

    assert threads() == []


@pytest.mark.parametrize("samples", [0, -1, 1.5, "10"])
def test_a_number_of_samples_that_is_no_positive_int_is_refused(profiler: ProfilerContext, samples: object) -> None:
    """A number of samples that is not a positive int is refused, and the profiler stays off."""
    with pytest.raises(ValueError, match="samples_per_report"):
        profiler.on(samples_per_report=samples)  # type: ignore[arg-type]

    assert threads() == []


@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_a_source_that_fails_is_given_up_alone(
    journal: JournalWriter, caplog: pytest.LogCaptureFixture, fails_at: int
) -> None:
    """A failing source is dropped with one warning; its earlier samples and the other sources are kept."""
    profiler = profiler_of(journal, Counter(fails_at), Other(0.5))

    profiler.on(sampling_interval=0.1, samples_per_report=2)
    wait_for(lambda: len(recorded(journal)["other"]) == 2)
    profiler.off()

    assert recorded(journal)["other"][:2] == [{"figure": 0.5}, {"figure": 0.5}]
    assert recorded(journal).get("counted", []) == ([{"samples": 1.0}] if fails_at == 2 else [])
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "the profiler goes on without the counter: ZeroDivisionError: the driver divided by zero"
    ]


def test_a_figure_that_is_no_number_is_recorded_as_it_is(journal: JournalWriter) -> None:
    """A NaN is recorded and does not damage the journal."""
    profiler = profiler_of(journal, Other(math.nan))

    profiler.on(sampling_interval=0.1, samples_per_report=1)
    wait_for(lambda: "other" in recorded(journal))
    profiler.off()

    assert math.isnan(recorded(journal)["other"][0]["figure"])


def test_a_journal_that_is_closed_first_stops_the_profiler(
    journal: JournalWriter, caplog: pytest.LogCaptureFixture
) -> None:
    """If the journal is closed first, the profiler stops with a warning, and off() still works."""
    profiler = profiler_of(journal, Counter())
    profiler.on(sampling_interval=0.1, samples_per_report=1)

    journal.close()
    wait_for(lambda: threads() == [])

    profiler.off()
    assert "the profiler stops" in caplog.text


def test_a_forked_child_neither_collects_nor_stops_its_parent(journal: JournalWriter) -> None:
    """A data-loader worker has inherited a profiler that is on, without its thread."""
    counter = Counter()
    profiler = profiler_of(journal, counter)
    profiler.on(sampling_interval=0.1, samples_per_report=1)

    child = os.fork()
    if child == 0:
        profiler.off()
        try:
            profiler.on()
        except JournalError:
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    samples_before = counter.num_samples
    wait_for(lambda: counter.num_samples > samples_before)
    profiler.off()

    assert os.waitstatus_to_exitcode(status) == 0


def test_a_process_that_ends_with_the_profiler_on_ends(start_script: Callable[..., Script]) -> None:
    """A process whose profiler is on can exit."""
    script = start_script(
        """
        from pathlib import Path
        from core_sdk.core import ProfilerContext
        from core_sdk._home.journal import JournalWriter
        ProfilerContext(JournalWriter(Path("1.journal")), 0).on(sampling_interval=60)
        """
    )

    status, _, errors = script.wait()

    assert (status, errors) == (0, "")


def test_psutil_is_loaded_by_who_profiles() -> None:
    """psutil and pynvml are not imported before the profiler is used."""
    source = (
        "import sys, core_sdk.core._profiler; print([name for name in ('psutil', 'pynvml') if name in sys.modules])"
    )

    output = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout

    assert output == "[]\n"


@contextlib.contextmanager
def traffic() -> Iterator[None]:
    """Sends bytes through the loopback interface until the block ends."""

    def receive() -> None:
        while receiver.recv(1 << 20):
            pass

    def send() -> None:
        while not done.is_set():
            sender.sendall(bytes(1 << 16))
        sender.close()

    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    ends = [threading.Thread(target=receive), threading.Thread(target=send)]
    for end in ends:
        end.start()
    try:
        yield
    finally:
        done.set()
        for end in ends:
            end.join()
        receiver.close()
