"""Workers as processes of this machine."""

from __future__ import annotations

from core_sdk._execution.workers.local._engine import LocalEngine, LocalTeam, ProgramArguments, WorkerProcesses
