"""Messages to people about what happens to trials: by Apprise, to whoever a home names.

Who knows of an event, an agent or a master, posts a message: a file in a queue for each target that wants it. That
takes a millisecond, and never fails. A sender, a process of its own, sends what is queued, and ends. It may be killed
at any time: the next post, agent or master starts another one, which sends again what may have been sent. So each
message arrives at least once; each send carries an identity, by which a target can tell that it has come before.
"""

from core_sdk._execution.messages._alerts import NewAlerts
from core_sdk._execution.messages._disk import FullDisks
from core_sdk._execution.messages._ends import post_end
from core_sdk._execution.messages._posting import post, post_end_of_experiment, post_of_trial
from core_sdk._execution.messages._queue import SentMessage, read_sent
from core_sdk._execution.messages._sending import MessageSender, send_test
from core_sdk._execution.messages._targets import (
    KINDS,
    Message,
    NotifyTarget,
    add_target,
    read_targets,
    remove_target,
)
