"""The settings of this process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from core_sdk._ground.environment.names import (
    AUTHOR_VARIABLE,
    DISTURBANCE_VARIABLE,
    FIGURES_VARIABLE,
    FINGERPRINTS_VARIABLE,
    GRACE_VARIABLE,
    HOME_VARIABLE,
    IMPORTS_VARIABLE,
    MAX_MEDIA_VARIABLE,
    QUIET_VARIABLE,
    RUN_INFO_VARIABLE,
    SERVER_VARIABLE,
    SIGNS_VARIABLE,
    SLOTS_VARIABLE,
    STALL_VARIABLE,
    STOP_NOTICES_VARIABLE,
    STORAGE_DEADLINE_VARIABLE,
    TEST_MODE_VARIABLE,
    TOKEN_VARIABLE,
    TRIAL_VARIABLE,
    WRITER_VARIABLE,
)
from core_sdk._ground.signs import StallBounds
from core_sdk.errors import HomeNotWritableError

_DEFAULT_GRACE_S = 3600.0
_DEFAULT_STORAGE_DEADLINE_S = 300.0
_DEFAULT_MAX_MEDIA_MB = 64.0
_FIGURES_S = 15.0
_DEFAULT_SLOT_DIRECTORY = "/tmp/core-sdk-slots"  # not TMPDIR, since all users must mean the same


class Environment(msgspec.Struct, frozen=True):
    """The home and the run info of this process."""

    home: Path
    """An absolute path, which need not exist."""
    run_info: Path | None

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> Environment:
        home = variables.get(HOME_VARIABLE)
        run_info = variables.get(RUN_INFO_VARIABLE)
        return cls(
            home=_absolute(Path(home)) if home else _default_home(),
            run_info=Path(run_info) if run_info else None,
        )


class WriterSettings(msgspec.Struct, frozen=True):
    """The trial that a script reports about, and the name under which it does, if it is not the trial's own program."""

    name: str | None
    trial: str | None
    """Its id or its name."""

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> WriterSettings:
        return cls(variables.get(WRITER_VARIABLE) or None, variables.get(TRIAL_VARIABLE) or None)


@dataclass(frozen=True)
class WorkspaceSettings:
    """The workspace on a server in which this process works, and where the tokens for such workspaces are kept."""

    server: str
    """Its address, or the name of a login; empty if there is none."""
    token: str = field(repr=False)
    """The token for it; empty if it is kept by a login."""

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> WorkspaceSettings:
        return cls(variables.get(SERVER_VARIABLE, ""), variables.get(TOKEN_VARIABLE, ""))


def logins_path() -> Path:
    """Returns the file that keeps this user's tokens for workspaces on servers."""
    import platformdirs  # not for scripts

    return Path(platformdirs.user_config_dir("core-sdk", appauthor=False)) / "workspaces.json"


def workspace_variables(server: str, token: str, variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the variables that have the trials of a process sent to a workspace.

    A token that is in a variable already is another workspace's.
    """
    return {SERVER_VARIABLE: server} | ({TOKEN_VARIABLE: token} if TOKEN_VARIABLE in variables else {})


def writer_variables(name: str, trial: int | str) -> dict[str, str]:
    """Returns the variables that have a script's `init()` write to a trial."""
    return {WRITER_VARIABLE: name, TRIAL_VARIABLE: str(trial)}


class LaunchSettings(msgspec.Struct, frozen=True):
    """The settings of a launcher."""

    grace_s: float
    """The time that ranks may take to end after a stop was asked for."""
    log_level: str | None
    """torchrun's LOGLEVEL."""
    has_num_threads: bool
    """Whether the user has set OMP_NUM_THREADS."""
    is_usr1_stop: bool = False
    """Whether SIGUSR1 is a stop, as SIGTERM is."""
    error_file: str = ""
    """torchrun's file for the exception of the rank that failed first; empty if nobody wants it."""

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> LaunchSettings:
        """Reads the settings. Raises `ValueError` for a grace that is not a number of seconds."""
        return cls(
            grace_s=_grace_s(variables.get(GRACE_VARIABLE) or str(_DEFAULT_GRACE_S)),
            log_level=variables.get("LOGLEVEL"),
            has_num_threads="OMP_NUM_THREADS" in variables,
            is_usr1_stop=is_usr1_stop(variables),
            error_file=variables.get("TORCHELASTIC_ERROR_FILE", ""),
        )


class StopNoticeSettings(msgspec.Struct, frozen=True):
    """The clouds that are asked for notices of a machine's end, and the addresses of their servers."""

    clouds: tuple[str, ...]
    """The names in the variable, unchecked."""
    gce_host: str
    """A host, with a port if that is not 80."""
    ec2_endpoint: str
    """A URL."""

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> StopNoticeSettings:
        clouds = variables.get(STOP_NOTICES_VARIABLE, "").split(",")
        return cls(
            clouds=tuple(cloud.strip() for cloud in clouds if cloud.strip()),
            gce_host=variables.get("GCE_METADATA_HOST") or "metadata.google.internal",
            ec2_endpoint=variables.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or "http://169.254.169.254",
        )


@dataclass(frozen=True)
class AzureSettings:
    """An account of Azure's storage, from Azure's own variables."""

    connection_string: str | None = field(repr=False)
    account: str | None
    key: str | None = field(repr=False)
    sas_token: str | None = field(repr=False)

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> AzureSettings:
        names = ("CONNECTION_STRING", "ACCOUNT", "KEY", "SAS_TOKEN")
        return cls(*(variables.get(f"AZURE_STORAGE_{name}") or None for name in names))


def known_grace_s(variables: Mapping[str, str] = os.environ) -> float | None:
    """Returns the time that this process may take to end after a stop was asked for; None if it is not set.

    Raises `ValueError` for anything but a number of seconds.
    """
    text = variables.get(GRACE_VARIABLE)
    return _grace_s(text) if text else None


def storage_deadline_s() -> float:
    """Returns the time for which failing requests to a bucket are repeated.

    Raises `ValueError` for anything but a number of seconds.
    """
    text = os.environ.get(STORAGE_DEADLINE_VARIABLE)
    return _seconds(STORAGE_DEADLINE_VARIABLE, text) if text else _DEFAULT_STORAGE_DEADLINE_S


def slot_directory(variables: Mapping[str, str] = os.environ) -> Path:
    """Returns the directory by which all users of this machine share its slots."""
    return Path(variables.get(SLOTS_VARIABLE) or _DEFAULT_SLOT_DIRECTORY).absolute()


def max_media_bytes() -> int:
    """Returns the size in bytes that a value of `core_sdk.media` may have.

    Raises `ValueError` for anything but a number of megabytes.
    """
    text = os.environ.get(MAX_MEDIA_VARIABLE)
    megabytes = _number(MAX_MEDIA_VARIABLE, text, "megabytes") if text else _DEFAULT_MAX_MEDIA_MB
    return int(megabytes * 10**6)


def stall_bounds() -> StallBounds | None:
    """Returns when a training counts as stalled; None if nobody is to watch. Raises `ValueError`."""
    try:
        return StallBounds.parse(text) if (text := os.environ.get(STALL_VARIABLE)) else StallBounds()
    except ValueError as error:
        raise ValueError(f"{STALL_VARIABLE}: {error}") from None


def figures_interval_s() -> float | None:
    """Returns the time between two samples of the machine's figures; None for "off". Raises `ValueError`."""
    text = os.environ.get(FIGURES_VARIABLE)
    if text == "off":
        return None
    try:
        interval_s = float(text) if text else _FIGURES_S
    except ValueError:
        interval_s = 0.0
    if not 0.1 <= interval_s <= threading.TIMEOUT_MAX:
        raise ValueError(f"{FIGURES_VARIABLE} is {text!r}; it must be off, or at least 0.1 seconds")
    return interval_s


def signs_directory() -> Path | None:
    """Returns the directory for the signs of life of the ranks of this node; None if no agent looks at them here."""
    directory = os.environ.get(SIGNS_VARIABLE)
    return Path(directory) if directory and Path(directory).is_dir() else None


def is_usr1_stop(variables: Mapping[str, str] = os.environ) -> bool:
    """Returns whether SIGUSR1 is a stop: Slurm can send it before a job's time is over (`--signal=USR1@120`)."""
    return bool(variables.get("SLURM_JOB_ID"))


def stop_signals() -> tuple[signal.Signals, ...]:
    """Returns the signals that ask this process to stop."""
    return (signal.SIGTERM, signal.SIGUSR1) if is_usr1_stop() else (signal.SIGTERM,)


def author() -> str:
    """Returns who tries something: what the environment says, or else the name of the user."""
    if told := os.environ.get(AUTHOR_VARIABLE, ""):
        return told
    import getpass  # not for scripts

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user that has no name
        return str(os.getuid())


def is_quiet() -> bool:
    """Returns whether a script does not say which trial it is, and how it has ended."""
    return os.environ.get(QUIET_VARIABLE, "") not in ("", "0")


def disturbance() -> str:
    """Returns the JSON of the disturbance for which `core-sdk check-resume` asks; empty in every usual training."""
    return os.environ.get(DISTURBANCE_VARIABLE, "")


def fingerprints_path() -> Path | None:
    """Returns the file for a training's fingerprints, for which `core-sdk check-resume` asks; usually None."""
    return Path(path) if (path := os.environ.get(FINGERPRINTS_VARIABLE, "")) else None


def imports_path() -> Path | None:
    """Returns the file for the names of what a trial imports, for which the master of a search asks; usually None."""
    return Path(path) if (path := os.environ.get(IMPORTS_VARIABLE, "")) else None


def is_test_mode(variables: Mapping[str, str] = os.environ) -> bool:
    """Returns whether trainers train one batch only, to show that the script works."""
    return variables.get(TEST_MODE_VARIABLE, "") not in ("", "0")


def _grace_s(text: str) -> float:
    return _seconds(GRACE_VARIABLE, text)


def _seconds(name: str, text: str) -> float:
    return _number(name, text, "seconds")


def _number(name: str, text: str, unit: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.0 <= number < float("inf"):
        raise ValueError(f"{name} is {text!r}; it must be a number of {unit}, at least 0")
    return number


def _default_home() -> Path:
    # What platformdirs says in the usual case: to import it takes 7 ms of each command and each script.
    own = os.environ.get("HOME", "")
    if sys.platform == "linux" and own.startswith("/") and "XDG_DATA_HOME" not in os.environ:
        return Path(own, ".local", "share", "core-sdk")
    import platformdirs

    return _absolute(Path(platformdirs.user_data_dir("core-sdk", appauthor=False)))


def _absolute(home: Path) -> Path:
    try:
        return home.expanduser().absolute()
    except RuntimeError as error:
        raise HomeNotWritableError(home, "no home directory is known for the user that it names") from error
    except FileNotFoundError as error:
        raise HomeNotWritableError(home, "it is relative to the working directory, which is gone") from error
