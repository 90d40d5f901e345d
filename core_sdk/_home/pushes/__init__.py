"""The trials of a home that are to be sent to workspaces on servers, what people ask there, and the user's logins.

Whoever records names its trial here, and starts the home's pusher, an annex, which sends whatever is named.
"""

from core_sdk._home.pushes._logins import Login, find_login, log_in, name_of, read_logins
from core_sdk._home.pushes._requests import ActionOutcome, ActionRequest, ActionRequests
from core_sdk._home.pushes._wanted import (
    PushRecord,
    end_push,
    have_pushed,
    keep_pushing,
    pusher_lock,
    pusher_log,
    start_pusher,
    wanted_pushes,
    workspace_address,
)
