"""A lab in a folder, and somebody of each kind who asks its door."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from home.journals import new_trial, record, report
from interfaces.server.visitor import PAGE, Answer, request

from core_sdk._interfaces.lab.door import Door
from core_sdk._interfaces.lab.folder import Lab
from core_sdk._interfaces.lab.people import People
from core_sdk._interfaces.lab.roles import Subject
from core_sdk._interfaces.lab.site import Site
from core_sdk._interfaces.server.pages import PageFile
from core_sdk._workspace.routes import workspace_routes

HOST = "lab.example"
PROXY = "10.0.0.7"
SITE = Site(
    f"https://{HOST}",
    frozenset([HOST]),
    proxies=(ipaddress.ip_network("10.0.0.0/24"),),
    person_header="x-forwarded-user",
)
LAB_PAGE = PageFile(b"<!doctype html><title>lab</title>", "text/html; charset=utf-8", '"3"')
DAY_S = 86400.0
NOBODIES = ("nobody", "expired", "revoked")
ASKERS = (*NOBODIES, "reader", "writer", "owner", "stranger", "link", "report", "invited", "prometheus")
"""A stranger owns another workspace, and the invited one has not come yet.

The link opens trial 1 of this workspace, and that to a report the report of experiment 1."""


@dataclass(frozen=True)
class Asked:
    """A request of one asker."""

    asker: str
    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    client: str = "127.0.0.1"


class LabVisitor:
    """The workspace `vision` has three trials, `speech` one; `secrets` has the secret of each asker."""

    def __init__(self, root: Path, site: Site = SITE) -> None:
        self.lab = Lab.create(root)
        for name, num_trials in (("vision", 3), ("speech", 1)):
            home = self.lab.add_workspace(name)
            for number in range(num_trials):
                record(new_trial(home, f"{name}-{number}", lr=0.1), report(1, loss=0.5))
        people = self.lab.people
        for person in ("reader", "writer", "owner"):
            people.set_role("vision", person, person)
        people.set_role("speech", "stranger", "owner")
        self.secrets = {person: self.token("vision", person) for person in ("reader", "writer", "owner")}
        self.secrets["stranger"] = self.token("speech", "stranger")
        opened: dict[str, Subject] = {"link": ("trial", 1), "report": ("report", 1)}
        for name, only in opened.items():
            link = people.issue("link", "writer", DAY_S, workspace="vision", role="reader", only=only)
            self.secrets[name] = link[0]
        self.secrets["revoked"], revoked = people.issue("token", "owner", DAY_S, workspace="vision")
        people.revoke(revoked.id)
        self.secrets["expired"], expired = people.issue("token", "owner", DAY_S, workspace="vision")
        people.change(lambda before: _expired(before, expired.id))
        self.secrets["invited"] = people.issue("invitation", "guest", DAY_S, workspace="vision", role="owner")[0]
        self.secrets["prometheus"] = people.issue("metrics", "owner", DAY_S)[0]
        self.door = Door(self.lab, site, {**PAGE, "/lab.html": LAB_PAGE}, workspace_routes)

    def token(self, workspace: str, person: str) -> str:
        return self.lab.people.issue("token", person, DAY_S, workspace=workspace)[0]

    def ask(
        self, asker: str, method: str, path: str, body: bytes = b"", client: str = "127.0.0.1", **headers: str
    ) -> Answer:
        return self.ask_all([Asked(asker, method, path, headers, body, client)])[0]

    def act(self, asker: str, path: str, **body: object) -> Answer:
        headers = {"x_core_sdk_action": "1", "content_type": "application/json"}
        return self.ask(asker, "POST", path, msgspec.json.encode(body), **headers)

    def ask_all(self, asked: Iterable[Asked]) -> list[Answer]:
        """`_` in the name of a header stands for `-`."""

        async def ask_them() -> list[Answer]:
            return [await self._request(one) for one in asked]

        # In a thread of its own: this one has a loop that runs once a browser was steered from it.
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(lambda: asyncio.run(ask_them())).result()

    async def _request(self, one: Asked) -> Answer:
        secret = self.secrets.get(one.asker)
        named = {"host": HOST} | ({"authorization": f"Bearer {secret}"} if secret else {}) | dict(one.headers)
        raw = [(name.replace("_", "-").encode(), value.encode("latin-1", "replace")) for name, value in named.items()]
        return await request(self.door, one.method, one.path, raw, one.body, one.client)

    def close(self) -> None:
        self.door.workspaces.close()


def _expired(people: People, credential_id: str) -> People:
    return msgspec.structs.replace(
        people,
        credentials={
            key: msgspec.structs.replace(one, expires=time.time() - 1) if one.id == credential_id else one
            for key, one in people.credentials.items()
        },
    )
