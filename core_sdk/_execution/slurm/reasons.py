"""Says in plain English why a job waits. Pure."""

from __future__ import annotations

import re

_PASSING = {
    "BeginTime": "its start time has not come, as for a while after a requeue",
    "Cleaning": "what its last start has left is being cleaned up",
    "Dependency": "it follows a job that has not ended",
    "JobArrayTaskLimit": "as many jobs of its array run as may at a time",
    "Licenses": "a license that it needs is in use",
    "NodeDown": "a node that it needs is down",
    "None": "Slurm has not looked at it yet",
    "Priority": "jobs of a higher priority come before it",
    "ReqNodeNotAvail": "a node that it needs is down, reserved or in use",
    "Reservation": "its reservation has not begun",
    "Resources": "what it asks for is in use",
}
# The reasons that only a person can change.
_LASTING = {
    "AccountNotAllowed": "its account may not use the partition",
    "BadConstraints": "no node has all that it asks for",
    "DependencyNeverSatisfied": "the job that it follows has ended in another way",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its QOS is not valid",
    "JobHeldAdmin": "an administrator holds it",
    "JobHeldUser": "it is held: `scontrol release` lets it go",
    "PartitionConfig": "its partition cannot give what it asks for",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition takes no jobs",
    "PartitionNodeLimit": "it asks for more nodes than its partition allows",
    "PartitionTimeLimit": "it asks for more time than its partition allows",
    "QOSNotAllowed": "its QOS may not be used there",
}
_LIMIT = re.compile(r"(Assoc|QOS|MaxMem)(?=.*(?:Max|Grp|Limit))(.*?)(?:Limit)?$")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]+")


def plain_reason(reason: str) -> str:
    """Returns the reason for which a job waits in words, with Slurm's own name for it."""
    name = reason.partition(",")[0].strip("()")
    if words := _PASSING.get(name or "None") or _LASTING.get(name):
        return f"{words} ({reason})" if name else words
    if limit := _LIMIT.match(name):
        owner = {"Assoc": "account", "QOS": "QOS"}.get(limit[1], "partition")
        kind = " ".join(_WORD.findall(limit[2])).lower().replace("grp", "all together:")
        return f"its {owner} has reached a limit, {kind} ({reason})"
    return reason


def lasts(reason: str) -> bool:
    """Returns whether the reason stays until somebody changes something, as far as its name tells."""
    name = reason.partition(",")[0].strip("()")
    return name in _LASTING or (bool(_LIMIT.match(name)) and "PerJob" in name)
