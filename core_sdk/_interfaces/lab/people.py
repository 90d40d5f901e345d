"""The people of a lab, their roles, and what they prove themselves by: one file, of which only hashes are secret."""

from __future__ import annotations

import functools
import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from core_sdk._ground.alive import file_lock
from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.files import read_regular, write_atomically
from core_sdk._interfaces.lab.roles import ROLES, Grant, Role, Subject, lesser
from core_sdk.errors import CoreSDKError

FORMAT = 1
INVITATION_S = 3 * 86400.0
_SECRET_BYTES = 32
_ID_BYTES = 5
_LOCK_WAIT_S = 10.0
_MOST_CREDENTIALS = 20_000
_LONGEST_PERSON = 200

Kind = Literal["token", "session", "invitation", "link", "metrics"]
PREFIX = "lab_"
"""What each secret begins with, so that programs that look for leaked secrets find it."""
SECRET = rf"{PREFIX}[0-9a-f]+"
"""What secrets look like in a text."""


class Credential(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the holder of a secret may do. The secret itself is kept nowhere."""

    id: str
    kind: Kind
    person: str
    """Who asks with it; of a link, who has made it."""
    created: float
    expires: float | None = None
    workspace: str = ""
    """The only workspace that it is for; empty: all those of the person."""
    role: Role | None = None
    """The most that it allows, of what the person may do; of an invitation, the role that it gives."""
    trial_id: int | None = None
    """The only trial that a link opens."""
    experiment_id: int | None = None
    """The only experiment whose report a link opens."""
    parent: str = ""
    """The credential by which it was got: it ends with that one."""
    label: str = ""

    @property
    def only(self) -> Subject | None:
        """What a link opens; None for all else, which is not confined."""
        if self.trial_id is not None:
            return "trial", self.trial_id
        return None if self.experiment_id is None else ("report", self.experiment_id)

    def is_valid(self, now: float) -> bool:
        return self.expires is None or now < self.expires


class People(msgspec.Struct, frozen=True, dict=True):
    """The content of the file."""

    format: int = FORMAT
    members: dict[str, dict[str, Role]] = {}
    """Workspace -> person -> role."""
    credentials: dict[str, Credential] = {}
    """The SHA-256 of each secret -> what it allows."""

    def find(self, secret: str, now: float) -> Credential | None:
        """Returns the valid credential of a secret, or None. An invitation is none: it must be redeemed."""
        found = self.credentials.get(hash_of(secret))
        is_proof = found is not None and found.kind != "invitation" and self.holds(found, now)
        return found if is_proof else None

    def by_id(self, credential_id: str) -> Credential | None:
        return self._by_id.get(credential_id)

    @functools.cached_property
    def _by_id(self) -> Mapping[str, Credential]:
        return {one.id: one for one in self.credentials.values()}

    @functools.cached_property
    def ids(self) -> frozenset[str]:
        return frozenset(self._by_id)

    def holds(self, credential: Credential, now: float) -> bool:
        """Returns whether a credential and all that it was got by are still there, and not expired."""
        if not credential.is_valid(now):
            return False
        parent = self.by_id(credential.parent) if credential.parent else None
        return not credential.parent or (parent is not None and self.holds(parent, now))

    def grant(self, credential: Credential) -> Grant:
        """Returns what a valid credential allows now: never more than its person may do."""
        if credential.kind == "metrics":
            return Grant(credential.person, {}, credential.id, is_for_metrics=True)
        roles = {
            name: role if credential.role is None else lesser(role, credential.role)
            for name, role in self.roles_of(credential.person).items()
            if credential.workspace in ("", name)
        }
        return Grant(credential.person, roles, credential.id, credential.only)

    def roles_of(self, person: str) -> dict[str, Role]:
        return {name: members[person] for name, members in self.members.items() if person in members}


class PeopleFile:
    """The file, which several processes read and change. Any thread may use it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._mark: tuple[int, int, int] | None = None
        self._read = People()

    def read(self) -> People:
        """Returns what the file says now; it is read only if it has changed. Raises `CoreSDKError` if it is damaged."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return People()
        mark = found.st_ino, found.st_mtime_ns, found.st_size
        with self._guard:
            if mark != self._mark:
                self._read, self._mark = _decoded(self._path), mark
            return self._read

    def change(self, changed: Callable[[People], People]) -> People:
        """Replaces the content by what `changed` returns for it, while no other process changes it.

        Expired credentials are left out. Raises `CoreSDKError`, or what `changed` raises, and leaves the file then.
        """
        with file_lock(self._path.with_suffix(".lock"), _LOCK_WAIT_S):
            before = _decoded(self._path) if self._path.exists() else People()
            after = changed(before)
            now = time.time()
            kept = {key: one for key, one in after.credentials.items() if after.holds(one, now)}
            if len(kept) > _MOST_CREDENTIALS:
                raise CoreSDKError(f"there are {_MOST_CREDENTIALS} tokens, sessions and links: revoke some of them")
            after = msgspec.structs.replace(after, credentials=kept)
            write_atomically(self._path, msgspec.json.format(msgspec.json.encode(after)))
        return after

    def issue(
        self,
        kind: Kind,
        person: str,
        lasts_s: float | None,
        *,
        workspace: str = "",
        role: Role | None = None,
        only: Subject | None = None,
        parent: str = "",
        label: str = "",
    ) -> tuple[str, Credential]:
        """Makes a credential, and returns its secret, which nobody can read again.

        Raises `ValueError` for a token or link that would allow more than its person may do.
        """
        check_person(person)
        secret = f"{PREFIX}{secrets.token_hex(_SECRET_BYTES)}"
        now = time.time()
        expires = None if lasts_s is None else now + lasts_s
        opened = {} if only is None else dict([only])
        made = Credential(
            secrets.token_hex(_ID_BYTES),
            kind,
            person,
            now,
            expires,
            workspace,
            role,
            trial_id=opened.get("trial"),
            experiment_id=opened.get("report"),
            parent=parent,
            label=label,
        )

        def add(people: People) -> People:
            if kind in ("token", "link"):
                check_role(people, made)
            return msgspec.structs.replace(people, credentials={**people.credentials, hash_of(secret): made})

        self.change(add)
        return secret, made

    def revoke(self, credential_id: str) -> None:
        """Ends a credential and all that were got by it. Raises `ValueError` if there is none with this id."""

        def remove(people: People) -> People:
            if people.by_id(credential_id) is None:
                raise ValueError(f"there is no token, session or link {credential_id}")
            kept = {key: one for key, one in people.credentials.items() if one.id != credential_id}
            return msgspec.structs.replace(people, credentials=kept)

        self.change(remove)

    def redeem(self, secret: str, lasts_s: float) -> tuple[str, Credential] | None:
        """Makes a session of an invitation, which nobody can use again, and the person a member.

        Returns the secret of the session and the session, or None if there is no such invitation any more. Nobody
        loses rights by an invitation.
        """
        key = hash_of(secret)

        def invited(people: People, open_ones: Mapping[str, Credential]) -> str | None:
            return open_ones[key].person if key in open_ones else None

        return self._let_in(invited, lasts_s, only=key)

    def sign_in(self, address: str, lasts_s: float) -> tuple[str, Credential] | None:
        """Makes a session for the person of an address that a provider has confirmed, and uses their invitations.

        Returns the secret of the session and the session, or None if the lab does not know the address. Small letters
        are the same as capital ones.
        """

        def known(people: People, open_ones: Mapping[str, Credential]) -> str | None:
            names = {name for members in people.members.values() for name in members}
            names |= {one.person for one in open_ones.values()}
            same = [name for name in names if name == address or (name.isascii() and name.lower() == address.lower())]
            return min(same, key=lambda name: (name != address, name), default=None)

        return self._let_in(known, lasts_s)

    def _let_in(
        self, find: Callable[[People, Mapping[str, Credential]], str | None], lasts_s: float, only: str | None = None
    ) -> tuple[str, Credential] | None:
        """Makes a session for the person that `find` names, of the people and the open invitations.

        The person's invitations, or the `only` one, are used.
        """
        key, now = f"{PREFIX}{secrets.token_hex(_SECRET_BYTES)}", time.time()
        made: list[Credential] = []

        def use(people: People) -> People:
            open_ones = {
                known: one
                for known, one in people.credentials.items()
                if one.kind == "invitation" and people.holds(one, now)
            }
            person = find(people, open_ones)
            if person is None:
                return people
            session = Credential(secrets.token_hex(_ID_BYTES), "session", person, now, now + lasts_s)
            made.append(session)
            credentials, members = {**people.credentials, hash_of(key): session}, {**people.members}
            for known, one in open_ones.items():
                if one.person == person and one.role is not None and only in (None, known):
                    del credentials[known]
                    before = members.get(one.workspace, {})
                    role = max(one.role, before.get(person, one.role), key=ROLES.index)
                    members[one.workspace] = {**before, person: role}
            return msgspec.structs.replace(people, members=members, credentials=credentials)

        self.change(use)
        return (key, made[0]) if made else None

    def set_role(self, workspace: str, person: str, role: Role | None, *, keeps_owner: bool = False) -> None:
        """Makes a person a member of a workspace, changes their role, or with None removes them.

        With `keeps_owner` it raises `ValueError` if the workspace would be left without an owner.
        """
        check_person(person)

        def set_it(people: People) -> People:
            members = {**people.members.get(workspace, {})}
            members.pop(person, None)
            if role is not None:
                members[person] = role
            if keeps_owner and "owner" not in members.values():
                raise ValueError(f"{workspace} would have no owner: name another one first")
            return msgspec.structs.replace(people, members={**people.members, workspace: members})

        self.change(set_it)


def check_person(person: str) -> None:
    """Raises `ValueError` unless this can be the name of a person: an account's name, or an address of e-mail."""
    if not 0 < len(person) <= _LONGEST_PERSON or not person.isprintable() or person != person.strip():
        raise ValueError(f"{person!r} names no person: 1 to {_LONGEST_PERSON} characters that can be printed")


def check_role(people: People, credential: Credential) -> None:
    """Raises `ValueError` if the credential would allow more than its person may do."""
    role = people.roles_of(credential.person).get(credential.workspace)
    if role is None:
        raise ValueError(f"{credential.person} is no member of {credential.workspace}")
    if credential.role is not None and ROLES.index(credential.role) > ROLES.index(role):
        raise ValueError(f"{credential.person} is only a {role} of {credential.workspace}")


def invitation_address(url: str, secret: str) -> str:
    """Returns the one-time link: browsers send nothing of what stands behind `#`."""
    return f"{url}/#invitation={secret}"


def hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _decoded(path: Path) -> People:
    try:
        people = json_decoder(People)(read_regular(path))
    except (OSError, msgspec.MsgspecError) as error:
        raise CoreSDKError(f"the people of this lab cannot be read: {path}: {error}") from error
    if people.format > FORMAT:
        raise CoreSDKError(f"{path} was written by a newer version of Core SDK")
    return people
