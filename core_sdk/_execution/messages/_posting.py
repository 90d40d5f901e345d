"""Posts messages: puts them into the queues of those who want them, and has a sender send them."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path

from core_sdk._execution.messages._queue import Queue
from core_sdk._execution.messages._targets import Message, MessageKind, read_targets
from core_sdk._ground.environment import agent_variables
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._machine.processes import start_helper
from core_sdk.errors import CoreSDKError

_WORDS: dict[MessageKind, str] = {
    "failed": "failed",
    "stalled": "stands still",
    "went_back": "went back",
    "paused": "was stopped",
    "not_resumed": "was not resumed",
    "ended": "has ended",
    "best": "is the best so far",
    "experiment": "has ended",
    "alert": "has an alert",
    "disk": "will fill its storage",
}


def post(home_root: Path, message: Message) -> None:
    """Posts a message. Never fails, since it is not what the caller is for."""
    with contextlib.suppress(CoreSDKError, OSError):
        wanting = [target for target in read_targets(home_root) if target.wants(message)]
        for target in wanting:
            after_s = 3600 * target.remind_after_h if message.kind == "not_resumed" else 0.0
            Queue(home_root, target.name).add(message, after_s)
        if wanting:
            start_sender(home_root)


def post_of_trial(folder: TrialFolder, kind: MessageKind, key: str, body: str) -> None:
    """Posts a message about a trial. `key` tells it from others of this kind."""
    if not (folder.home_root / "notify.json").exists():
        return
    with contextlib.suppress(CoreSDKError, OSError):
        trial = folder.read_record()
        if kind == "ended" and trial.request_id:
            return  # one of a search, which may have thousands
        experiment = Home(folder.home_root).experiment(trial.experiment_id).read().name
        name = f"trial {folder.trial_id}{f' ({trial.name})' if trial.name else ''} of {experiment}"
        post(
            folder.home_root,
            Message(
                identity=f"{Home(folder.home_root).owner()}/{folder.trial_id}/{kind}/{key}",
                kind=kind,
                time=time.time(),
                title=f"{name} {_WORDS[kind]}",
                body=body,
                trial_id=folder.trial_id,
                experiment=experiment,
                attempt=max(folder.attempts()),
            ),
        )


def post_end_of_experiment(home_root: Path, experiment_id: int, name: str, body: str) -> None:
    """Posts that the search of an experiment has ended."""
    if not (home_root / "notify.json").exists():
        return
    with contextlib.suppress(CoreSDKError, OSError):
        post(
            home_root,
            Message(
                identity=f"{Home(home_root).owner()}/experiment/{experiment_id}",
                kind="experiment",
                time=time.time(),
                title=f"experiment {name} ({experiment_id}) {_WORDS['experiment']}",
                body=body,
                experiment=name,
            ),
        )


def start_sender(home_root: Path) -> None:
    """Starts a sender in the background, which ends at once if another one is at work. It outlives this process."""
    start_helper(
        ["-P", "-m", "core_sdk._execution.messages", str(home_root.absolute())],
        env=agent_variables(),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
