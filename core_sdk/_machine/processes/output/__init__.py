"""The output of ranks on its way to the output of the process that supervises them, line by line, with a prefix."""

from __future__ import annotations

from core_sdk._machine.processes.output._outlet import FileCopy, MatchingLines, Outlet, Sink
from core_sdk._machine.processes.output._prefixed_lines import PrefixedLines
from core_sdk._machine.processes.output._rank_output import RankOutput, RankPipes, default_prefix
