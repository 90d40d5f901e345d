"""The folder of a lab: its workspaces, which are homes, the file of its people, and the log of who did what."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import msgspec

from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.files import read_regular, write_atomically
from core_sdk._home import Home
from core_sdk._interfaces.lab.people import PeopleFile
from core_sdk.errors import CoreSDKError

FORMAT = 1
NAME = r"[a-z0-9][a-z0-9_-]{0,62}"
"""The names of workspaces: they stand in addresses, and are folders."""


class LabRecord(msgspec.Struct, frozen=True):
    """The file `lab.json`, which makes a folder the folder of a lab."""

    format: int = FORMAT


class Lab:
    """An existing folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.people = PeopleFile(root / "people.json")

    @property
    def log(self) -> Path:
        return self.root / "audit.log"

    @property
    def last_uses(self) -> Path:
        return self.root / "last_uses.json"

    @classmethod
    def create(cls, root: Path) -> Lab:
        """Opens the folder at `root`, and makes it if it is missing or empty. Raises `CoreSDKError` or `OSError`."""
        if not (root / "lab.json").exists():
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(root.iterdir()):
                raise CoreSDKError(f"{root} is not the folder of a lab, and not empty")
            (root / "workspaces").mkdir(mode=0o700)
            write_atomically(root / "lab.json", msgspec.json.encode(LabRecord()))
        return cls.open(root)

    @classmethod
    def open(cls, root: Path) -> Lab:
        """Raises `CoreSDKError` if there is no lab at `root`, or a newer version has made it."""
        try:
            record = json_decoder(LabRecord)(read_regular(root / "lab.json"))
        except FileNotFoundError as error:
            words = f"{root} is not the folder of a lab. `core-sdk server up {root}` makes one"
            raise CoreSDKError(words) from error
        except (OSError, msgspec.MsgspecError) as error:
            raise CoreSDKError(f"the folder of the lab cannot be read: {root / 'lab.json'}: {error}") from error
        if record.format > FORMAT:
            raise CoreSDKError(f"{root} was made by a newer version of Core SDK")
        return cls(root)

    def workspaces(self) -> list[str]:
        """Returns the names of all workspaces, in order."""
        folder = self.root / "workspaces"
        return sorted(one.name for one in folder.iterdir() if re.fullmatch(NAME, one.name) and one.is_dir())

    def has_workspace(self, name: str) -> bool:
        return re.fullmatch(NAME, name) is not None and self._path(name).is_dir()

    def home(self, name: str) -> Home:
        """Returns the home of a workspace. Raises `CoreSDKError` if there is none of this name."""
        if not self.has_workspace(name):
            raise CoreSDKError(f"this lab has no workspace {name!r}: `core-sdk server workspace add {name}` makes it")
        return Home.open(self._path(name))

    def add_workspace(self, name: str) -> Home:
        """Makes a workspace. Raises `ValueError` for a name that cannot be one, and `CoreSDKError` if it is taken."""
        if re.fullmatch(NAME, name) is None:
            raise ValueError(f"a workspace is named by 1 to 63 small letters, digits, - and _; not {name!r}")
        if self.has_workspace(name):
            raise CoreSDKError(f"there is a workspace {name} already")
        return Home.create(self._path(name))

    def remove_workspace(self, name: str) -> Path:
        """Takes a workspace out of the lab, and returns where its home lies now: nothing is deleted."""
        self.home(name)
        removed = self.root / "removed"
        removed.mkdir(mode=0o700, exist_ok=True)
        target = removed / f"{name}-{time.time_ns()}"
        shutil.move(self._path(name), target)
        self.people.change(
            lambda people: msgspec.structs.replace(
                people, members={one: members for one, members in people.members.items() if one != name}
            )
        )
        return target

    def _path(self, name: str) -> Path:
        return self.root / "workspaces" / name
