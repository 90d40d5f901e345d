"""The rules of who may do what, as pure functions, which the door asks once for each request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["reader", "writer", "owner"]
ROLES: tuple[Role, ...] = ("reader", "writer", "owner")

Need = Literal["nothing", "person", "metrics", "reader", "writer", "owner", "another_server"]
"""What a route asks of whoever calls it.

`nothing` is open to everybody, `person` to all that have signed in, and `metrics` to tokens that are made for it.
`another_server` is what a lab does for nobody. The others are roles in the workspace.
"""

Verdict = Literal["yes", "unknown_asker", "unknown_workspace", "no", "not_in_a_lab"]


Subject = tuple[Literal["trial", "report"], int]
"""A trial, or the report of an experiment, by its number: a link opens one."""


@dataclass(frozen=True)
class Grant:
    """What one asker may do: their role in each workspace, and what confines it."""

    person: str
    roles: dict[str, Role]
    credential_id: str = ""
    """The token, session or link by which they ask; empty if a proxy has named them."""
    only: Subject | None = None
    """The only thing that they may see."""
    is_for_metrics: bool = False
    """Whether they may ask for the figures of the server, and for nothing else."""

    @property
    def is_person(self) -> bool:
        return not self.is_for_metrics and self.only is None


def lesser(one: Role, other: Role) -> Role:
    return min(one, other, key=ROLES.index)


def judge(grant: Grant | None, need: Need, workspace: str | None = None, subject: Subject | None = None) -> Verdict:
    """Returns whether a route that needs this may be answered, and otherwise why not.

    `subject` is the only thing that the route tells about; None if it tells about others, too.
    """
    if need == "nothing":
        return "yes"
    if grant is None:
        return "unknown_asker"
    if need == "metrics":
        return "yes" if grant.is_for_metrics else "no"
    if need == "person":
        return "yes" if grant.is_person else "no"
    role = grant.roles.get(workspace or "")
    if role is None or grant.is_for_metrics:
        return "unknown_workspace"
    if need == "another_server":
        return "not_in_a_lab"
    if grant.only is not None and not (need == "reader" and subject == grant.only):
        return "no"
    return "yes" if ROLES.index(role) >= ROLES.index(need) else "no"
