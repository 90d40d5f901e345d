"""How a trial has ended, and what to do next, in words."""

from __future__ import annotations

from core_sdk.tracking.attempts.continuation import has_checkpoint, has_reports
from core_sdk.tracking.home import TrialFolder
from core_sdk.tracking.rows import TrialState


def describe_end(folder: TrialFolder, state: TrialState, reason: str) -> str:
    """Says how the trial has ended. The text continues a sentence that begins with its name."""
    because = f" ({reason})" if reason else ""
    if state == "COMPLETED":
        return f"completed{because}"
    words = {"PAUSED": "is paused", "CANCELED": "was canceled"}.get(state, "failed")
    return f"{words}{because}: {what_resume_does(folder)}"


def what_resume_does(folder: TrialFolder) -> str:
    """Says what a resume would do with the trial. The text continues a sentence about the trial."""
    resume = f"`core-sdk trial resume {folder.trial_id}`"
    if has_checkpoint(folder):
        return f"{resume} goes on with it"
    if has_reports(folder, max(folder.attempts())):
        return f"it has no checkpoint, so that {resume} begins anew and hides what it has reported"
    return f"{resume} starts it again"


def what_is_hidden(folder: TrialFolder, attempt: int) -> str:
    """Says that the reports of `attempt` are superseded when the trial begins anew; empty if it has no reports."""
    if not has_reports(folder, attempt):
        return ""
    shown = f"`core-sdk trial metrics {folder.trial_id} --superseded` still shows it"
    return f", and what it has reported is superseded; {shown}"
