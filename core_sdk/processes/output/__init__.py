"""The output of ranks on its way to the output of the process that supervises them, line by line, with a prefix."""

from __future__ import annotations

from core_sdk.processes.output._copies import FileCopy
from core_sdk.processes.output._forwarder import Forwarder
from core_sdk.processes.output._outlet import Outlet
from core_sdk.processes.output._prefixed_lines import PrefixedLines
from core_sdk.processes.output._rank_output import RankOutput, RankPipes
from core_sdk.processes.output._stream import Stream
