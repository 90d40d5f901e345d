"""Prints what a program finds when it begins: what all programs find alike, and what each has for itself."""

# ruff: noqa: E402, PTH, SIM115

import sys

num_imported = len(sys.modules)
import atexit
import faulthandler
import gc
import json
import locale
import logging
import multiprocessing
import os
import random
import resource
import signal
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy

SELF = Path("/proc/self")

main = sys.modules["__main__"]
status = dict(line.split(":\t", 1) for line in (SELF / "status").read_text().splitlines())
ours = ("CORE_SDK_GUARDED_", "CORE_SDK_RUN_INFO", "CORE_SDK_ROOM", "CORE_SDK_SIGNS")
same = {
    "argv": sys.argv,
    "orig_argv": sys.orig_argv[1:],
    "path": sys.path,
    "flags": str(sys.flags),
    "xoptions": sys._xoptions,
    "executable": sys.executable,
    "prefix": sys.prefix,
    "warnoptions": sys.warnoptions,
    "no_bytecode": sys.dont_write_bytecode,
    "recursion": sys.getrecursionlimit(),
    "switch": sys.getswitchinterval(),
    "excepthook": sys.excepthook is sys.__excepthook__,
    "displayhook": sys.displayhook is sys.__displayhook__,
    "trace": str(sys.gettrace()),
    "profile": str(sys.getprofile()),
    "name": __name__,
    "file": __file__,
    "spec": str(__spec__).partition("(")[0],
    "package": __package__,
    "loader": type(main.__loader__).__name__,
    "is_main": main.__dict__ is globals(),
    "globals": sorted(main.__dict__)[:10],
    "builtins": repr(__builtins__),
    "doc": __doc__,
    "cwd": str(Path.cwd()),
    "umask": os.umask(0o22),
    "pgid": os.getpgid(0) == os.getpid(),
    "sid": os.getsid(0) == os.getpid(),
    "nice": os.nice(0),
    "affinity": sorted(os.sched_getaffinity(0)),
    "oom": (SELF / "oom_score_adj").read_text(),
    "limits": [resource.getrlimit(number) for number in range(16)],
    "uid": status["Uid"],
    "groups": status["Groups"],
    "blocked": status["SigBlk"],
    "ignored": status["SigIgn"],
    "caught": status["SigCgt"],
    "no_new": status["NoNewPrivs"],
    "handlers": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "wakeup": signal.set_wakeup_fd(-1),
    "environ": {name: value for name, value in os.environ.items() if not name.startswith(ours)},
    "shown": sorted(each for each in (SELF / "environ").read_text().split("\0") if each.startswith("CORE_SDK_HOME")),
    "ours": sorted(name.rpartition("_")[0] for name in os.environ if name.startswith(ours)),
    "command": [each for each in (SELF / "cmdline").read_text().split("\0") if each][1:],
    "comm": (SELF / "comm").read_text(),
    "stdin": str((SELF / "fd/0").readlink()),
    "one": str((SELF / "fd/1").readlink()) == str((SELF / "fd/2").readlink()),
    "tty": [stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)],
    "streams": [
        (s.name, s.encoding, s.errors, s.line_buffering, getattr(s, "write_through", None))
        for s in (sys.stdin, sys.stdout, sys.stderr)
    ],
    "descriptors": sorted(int(each.name) for each in (SELF / "fd").iterdir())[:3],
    "num_descriptors": len(list((SELF / "fd").iterdir())),
    "preferred": locale.getpreferredencoding(),
    "locale": locale.setlocale(locale.LC_ALL),
    "timezone": time.tzname,
    "gc": (gc.isenabled(), gc.get_threshold(), gc.get_debug()),
    "threads": threading.active_count(),
    "main_thread": threading.current_thread() is threading.main_thread(),
    "ident": threading.main_thread().native_id == os.getpid(),
    "thread_name": threading.current_thread().name,
    "children": (SELF / f"task/{os.getpid()}/children").read_text(),
    "tempdir": tempfile.gettempdir(),
    "filters": len(warnings.filters),
    "handlers_of_root": len(logging.root.handlers),
    "level": logging.root.level,
    "start_method": multiprocessing.get_start_method(),
    "process": multiprocessing.current_process().name,
    "parent": str(multiprocessing.parent_process()),
    "faulthandler": faulthandler.is_enabled(),
    "numpy_errors": numpy.geterr(),
    "is_young": time.process_time() < 60,
}
own = {
    "random": random.random(),
    "numpy": numpy.random.random(),
    "key": multiprocessing.current_process().authkey.hex(),
    "num_imported": num_imported,
}
atexit.register(print, "at exit")
print(json.dumps({"same": same, "own": own}))
