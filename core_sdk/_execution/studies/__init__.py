"""Studies: what an agent or a person tries, one change of the code after the other, each with several seeds.

A try is a snapshot of the code, and the trials that run it. The trials wait in a line of the home for slots; a process
in the background serves the line, and whoever waits only looks at the records. So nothing is lost if the one that
tries, or the one that serves, is killed.

The verbs stand here once. Command line, client and the tools of agents only call them.
"""

from core_sdk._execution.studies._line import host_of_wait
from core_sdk._execution.studies._restoring import check_out
from core_sdk._execution.studies._serving import ensure_served
from core_sdk._execution.studies._trying import AlreadyTried, TryRequest, begin_try
from core_sdk._execution.studies._verbs import DecidedTry, begin_study, code_difference, discard, keep
from core_sdk._execution.studies._waiting import await_tries, exit_status_of_try
