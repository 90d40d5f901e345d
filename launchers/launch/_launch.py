"""What one launcher process works with."""

from __future__ import annotations

from dataclasses import dataclass

from core_sdk.environment import LaunchSettings
from core_sdk.processes import CaughtSignals
from launch._command_line import Command
from launch._directory import LaunchDirectory
from launch._framework import Framework


@dataclass(frozen=True)
class Launch:
    framework: Framework
    command: Command
    settings: LaunchSettings
    directory: LaunchDirectory
    signals: CaughtSignals
