"""The figures of a lab's server, in the text format of Prometheus."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping

import psutil

BUCKETS_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class ServerFigures:
    """Counts requests, by route and not by address: so the number of figures is bounded. The server's loop calls it."""

    def __init__(self) -> None:
        self._started = time.time()
        self._requests = Counter[tuple[str, str, int]]()
        self._seconds = Counter[str]()
        self._buckets = Counter[tuple[str, float]]()
        self._counts = Counter[str]()

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        self._requests[route, method, status] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]  # a Counter of floats
        self._counts[route] += 1
        for bound in BUCKETS_S:
            if seconds <= bound:
                self._buckets[route, bound] += 1

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """Returns all figures; `gauges` are others, with a sentence about each."""
        return "\n".join([*self._lines(gauges), ""])

    def _lines(self, gauges: Mapping[str, tuple[str, float]]) -> Iterator[str]:
        process = psutil.Process()
        own = {
            "process_resident_memory_bytes": ("The memory of the server.", float(process.memory_info().rss)),
            "process_start_time_seconds": ("The time at which the server has started.", self._started),
            "process_open_fds": ("The files and connections that are open.", float(process.num_fds())),
        }
        for name, (words, value) in {**own, **gauges}.items():
            yield from (f"# HELP {name} {words}", f"# TYPE {name} gauge", f"{name} {value:g}")
        name = "core_sdk_requests_total"
        yield from (f"# HELP {name} The requests that were answered.", f"# TYPE {name} counter")
        for (route, method, status), number in sorted(self._requests.items()):
            yield f'{name}{{route="{route}",method="{method}",status="{status}"}} {number}'
        name = "core_sdk_request_seconds"
        yield from (f"# HELP {name} The time until a request was answered.", f"# TYPE {name} histogram")
        for route, number in sorted(self._counts.items()):
            for bound in BUCKETS_S:
                yield f'{name}_bucket{{route="{route}",le="{bound:g}"}} {self._buckets[route, bound]}'
            yield f'{name}_bucket{{route="{route}",le="+Inf"}} {number}'
            yield f'{name}_sum{{route="{route}"}} {self._seconds[route]:.6f}'
            yield f'{name}_count{{route="{route}"}} {number}'
