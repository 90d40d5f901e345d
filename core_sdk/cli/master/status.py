"""The status that a master gives."""

from __future__ import annotations

from core_sdk.cli._home import go_on
from core_sdk.cli._messages import say
from core_sdk.environment import Environment
from core_sdk.errors import MasterSilentError
from core_sdk.experiments.calling import call_running
from core_sdk.experiments.protocol import GetStatus, HomeStatus
from core_sdk.tracking import Home


def read_status() -> HomeStatus | None:
    """Returns the master's status; None if none runs. One that was killed, and is needed, is started again first.

    If the master does not answer, this says so, and returns what the journals tell.
    """
    home = Environment.read().home
    go_on(home, waits=True)
    try:
        return call_running(home, GetStatus(), is_patient=False)
    except MasterSilentError as error:
        from core_sdk.master.journaled import journaled_status

        say(f"{error} What follows is what the journals of the home tell.")
        return journaled_status(Home(home))
