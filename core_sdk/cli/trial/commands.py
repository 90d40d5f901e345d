"""The commands of `core-sdk trial`."""

from __future__ import annotations

from core_sdk.cli._group import command_group
from core_sdk.cli.trial import changing, looking, moving, steering

app = command_group()
for _commands in (looking, steering, changing, moving):
    _commands.register(app)
