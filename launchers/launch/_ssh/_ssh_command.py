"""The command that calls ssh, and descriptions of failed calls. Pure functions."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from launch._ssh._hostfile import Host, Ssh

SSH_FAILED = 255

_CONNECT_S = 15
# A host has vanished when it does not answer this many questions, with this many seconds between them.
_ALIVE_S = 8
_ALIVE_COUNT = 3
_NUM_QUOTED_LINES = 20

_OPTIONS = {
    # Nobody can type a password, or decide whether to trust a host.
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "ConnectTimeout": str(_CONNECT_S),
    "ServerAliveInterval": str(_ALIVE_S),
    "ServerAliveCountMax": str(_ALIVE_COUNT),
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "ClearAllForwardings": "yes",
    "PermitLocalCommand": "no",
    "EscapeChar": "none",
    # Each host has its own connection, whose end is the end of the host's part.
    "ControlMaster": "no",
    "ControlPath": "none",
    "RequestTTY": "no",
    "RemoteCommand": "none",
    # The log tells why a call failed.
    "LogLevel": "INFO",
}


def ssh_argv(host: Host, ssh: Ssh, program: Sequence[str], log: Path) -> list[str]:
    """Returns the command. ssh's own messages go into `log`, separate from the host's output."""
    options = [word for name, value in _OPTIONS.items() for word in ("-o", f"{name}={value}")]
    port = [] if ssh.port is None else ["-p", str(ssh.port)]
    identity = [] if ssh.identity_file is None else ["-i", str(ssh.identity_file), "-o", "IdentitiesOnly=yes"]
    return ["ssh", *options, *port, *identity, "-E", str(log), "-T", "--", host.name, shlex.join(program)]


def why_not_started(host: Host, ssh: Ssh, code: int, log: str, stderr: str) -> list[str]:
    """Returns lines about a host on which none of our programs has started."""
    if code == SSH_FAILED:
        return [_why_unreachable(host, ssh, log), *_quoted(log)]
    return [
        f"{host.name}: {sys.executable} cannot be started there (status {code}). The launcher needs the same Python, "
        "with Core SDK, at the same path on all hosts",
        *_quoted(stderr or log),
    ]


def why_lost(host: Host, log: str) -> list[str]:
    """Returns lines about a host that was lost while the training ran there."""
    return [
        f"{host.name} was lost: its launcher, or the connection to it, ended in the middle of the training",
        *_quoted(log),
    ]


def _why_unreachable(host: Host, ssh: Ssh, log: str) -> str:
    port = "" if ssh.port is None else f"-p {ssh.port} "
    call = f"ssh {port}{host.name}"
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in log or "differs from the key for" in log:
        return (
            f"{host.name} has another host key than the one that ssh knows: it is another machine, was set up anew, or "
            f"somebody stands between. Nothing was sent to it. If you know why, do what ssh says, then call `{call}`"
        )
    if "Host key verification failed" in log or "host key is known for" in log:
        return (
            f"{host.name} has a host key that ssh does not know: nothing was sent to it. Make it known: call `{call}` "
            "once, compare the fingerprint that it shows with the host's own, and say yes"
        )
    if "Permission denied" in log:
        return f"{host.name} refuses our key: `{call}` must work without a password"
    return f"{host.name} cannot be reached by ssh: `{call}` must work"


def _quoted(text: str) -> list[str]:
    lines = [line.strip("\r\n") for line in text.splitlines()]
    shown = [line for line in lines if line.strip()][-_NUM_QUOTED_LINES:]
    return [f"  {''.join(character if character.isprintable() else '�' for character in line)}" for line in shown]
