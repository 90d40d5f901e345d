"""sshd on hosts of the tests, and the client's side of it: keys and configuration of their own, in one folder."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from hosts.hosts import Host
from parts import require
from processes import wait_for

_SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


class Network:
    """Who knows whom by ssh: `variables` make the plain word `ssh` use this folder, and no other configuration."""

    def __init__(self, folder: Path) -> None:
        require("ssh")
        folder.mkdir()
        self.folder = folder
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.touch()
        self.key = _new_key(folder / "id")
        # sshd asks that nobody else may write to it.
        (folder / "authorized_keys").write_text(_public(self.key))
        (folder / "authorized_keys").chmod(0o600)
        self._write_client()

    @property
    def variables(self) -> dict[str, str]:
        return {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}

    def serve(self, host: Host) -> None:
        """Starts sshd on this host and makes its key known."""
        key = _new_key(self.folder / f"{host.name}_key")
        config = self.folder / f"{host.name}_config"
        config.write_text(
            f"ListenAddress {host.address}\nHostKey {key}\nPidFile none\nUsePAM no\nStrictModes no\n"
            f"AuthorizedKeysFile {self.folder / 'authorized_keys'}\nPasswordAuthentication no\n"
        )
        argv = [_SSHD, "-D", "-e", "-f", str(config)]
        # Where sshd wants an empty directory, of root's and nobody else's.
        bound = "mount -t tmpfs tmpfs /run && mkdir /run/sshd"
        log = (self.folder / f"{host.name}_log").open("wb")
        with log:
            host.start(["sh", "-c", f"{bound} && exec {shlex.join(argv)}"], stdout=log, stderr=log)
        wait_for(lambda: b"Server listening" in (self.folder / f"{host.name}_log").read_bytes())
        self.know(host, key)

    def know(self, host: Host, key: Path) -> None:
        with self.known_hosts.open("a") as file:
            file.write(f"{host.name},{host.address} {_public(key)}")

    def forget(self, host: Host) -> None:
        lines = self.known_hosts.read_text().splitlines(keepends=True)
        self.known_hosts.write_text("".join(line for line in lines if not line.startswith(f"{host.name},")))

    def take_for_another(self, host: Host) -> None:
        """Gives the host another key, as if it had been set up again."""
        self.forget(host)
        self.know(host, _new_key(self.folder / f"{host.name}_other_key"))

    def _write_client(self) -> None:
        config = self.folder / "config"
        config.write_text(
            f"Host *\n  User root\n  IdentityFile {self.key}\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
        )
        wrapper = self.folder / "bin" / "ssh"
        wrapper.parent.mkdir()
        # ssh finds the home by the list of users, whatever HOME says.
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {shlex.quote(str(config))} "$@"\n')
        wrapper.chmod(0o700)


def _new_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path], check=True)
    return path


def _public(key: Path) -> str:
    return key.with_name(f"{key.name}.pub").read_text()
