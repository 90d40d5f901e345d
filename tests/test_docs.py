"""What the README and the documents show is so: their commands and programs run, their names exist."""

from __future__ import annotations

import dataclasses
import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests
from buckets.strict_gcs import start_strict_gcs
from interfaces.cli.commands import Finished, WarmCli
from processes import kill_tree

from core_sdk import core, loop
from core_sdk._execution.experiments.calling import call_running
from core_sdk._execution.experiments.protocol import Down
from core_sdk._ground.config import load
from core_sdk._ground.records import TrialRecord, decode_file, decode_manifest
from core_sdk._home.journal import read_journal
from core_sdk._interfaces.cli._app import app

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
NAMES = [document.relative_to(ROOT).as_posix() for document in DOCUMENTS]

# `console` and `python` are run, `journal` and `manifest` decoded, `yaml` loaded; `sh` and `diff` are held against what
# they speak of.
KNOWN_LANGUAGES = {"", "console", "diff", "journal", "manifest", "python", "record", "sh", "yaml"}
TIMEOUT_S = 300
LAB_PORT = ":8700"
"""That of the servers in the documents."""

PAUSED = 75
"""The exit status of a trial that was stopped and is to be continued."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    language: str
    text: str


@dataclass
class Reader:
    """A reader who follows a document in an empty home: saves files, runs commands and compares output."""

    directory: Path
    warm_cli: WarmCli
    in_background: subprocess.Popen[bytes] | None = None
    server: subprocess.Popen[bytes] | None = None
    variables: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        shutil.copytree(ROOT / "examples", self.directory / "examples")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CORE_SDK_", "XDG_"))}
        self.variables = kept | {"HOME": str(self.directory), "PATH": path, "COLUMNS": "80"}

    def follow(self, block: Block) -> None:
        if block.language == "python":
            self.save_or_run(block.text)
        elif block.language == "yaml" and (name := re.match(r"# (\w+\.yaml)\n", block.text)):
            (self.directory / name[1]).write_text(block.text)
        elif block.language == "console":
            for command, expected in commands(block.text):
                self.type(command, expected)

    def save_or_run(self, program: str) -> None:
        """Saves a program whose first line is `# name.py`, and runs any other."""
        name = re.match(r"# (\w+\.py)\n", program)
        if name:
            (self.directory / name[1]).write_text(program)
        else:
            (self.directory / "snippet.py").write_text(program)
            self.type(f"{sys.executable} snippet.py", "")

    def type(self, command: str, expected: str) -> None:
        if self.in_background is not None:
            self.wait_for_a_checkpoint(self.in_background)
        if command.startswith("core-sdk server up"):
            self.serve(command.removesuffix("&"))
            return
        if command.endswith("&"):
            self.in_background = subprocess.Popen(
                ["bash", "-c", f"exec {command.removesuffix('&')}"],
                cwd=self.directory,
                env=self.variables,
                stdout=subprocess.DEVNULL,
            )
            return
        ended = self.run(command)
        assert ended.status == 0, f"$ {command}\n{ended.output}{ended.errors}"
        if expected:
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            wanted, got = map(without_widths, (expected, ended.output))
            assert doctest.OutputChecker().check_output(wanted, got, flags), f"$ {command}\n{ended.output}"
        if " pause " in command:
            self.finish()

    def run(self, command: str) -> Finished:
        """Runs a command as a shell would, or directly where that is enough."""
        if (arguments := core_sdk_arguments(command)) is not None:
            return self.warm_cli.run_with(self.variables, self.directory, *arguments)
        ended = subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Finished(ended.returncode, ended.stdout, ended.stderr)

    def serve(self, command: str) -> None:
        """Starts a server, and waits until it listens."""
        self.server = subprocess.Popen(
            shlex.split(command), cwd=self.directory, env=self.variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.server.stdout is not None
        assert self.server.stdout.readline(), self.server.communicate()[1]

    def wait_for_a_checkpoint(self, process: subprocess.Popen[bytes]) -> None:
        """Waits until the training in the background has stored a checkpoint."""
        give_up = time.monotonic() + TIMEOUT_S
        while not any(self.directory.glob(".local/share/core-sdk/checkpoints/*-*")) and process.poll() is None:
            assert time.monotonic() < give_up, "the training in the background stores no checkpoint"
            time.sleep(0.05)

    def finish(self) -> None:
        if self.in_background is not None:
            assert self.in_background.wait(TIMEOUT_S) in (0, PAUSED)
            self.in_background = None


def without_widths(output: str) -> str:
    """Shortens rules to one character, since the widths of tables vary."""
    return re.sub("─+", "─", output)


def core_sdk_arguments(command: str) -> list[str] | None:
    """Returns the arguments of a plain call of `core-sdk`, or None for another command."""
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    program, *arguments = words
    is_plain = program == "core-sdk" and "$" not in command and not set(arguments) & {"|", "&", "&&", ";", ">", "<"}
    return arguments if is_plain else None


@pytest.fixture
def reader(tmp_path: Path, warm_cli: WarmCli) -> Iterator[Reader]:
    reader = Reader(tmp_path, warm_cli)
    yield reader
    for process in (reader.in_background, reader.server):
        if process is not None:
            kill_tree(process.pid)
            process.communicate()
    call_running(tmp_path / ".local/share/core-sdk", Down())


@pytest.fixture
def my_bucket(reader: Reader) -> Iterator[None]:
    """A reader has the bucket that the documents speak of, on a server nearby."""
    with start_strict_gcs() as server:
        reader.variables |= server.variables()
        requests.post(
            f"{server.variables()['STORAGE_EMULATOR_HOST']}/storage/v1/b?project=docs",
            json={"name": "my-bucket"},
            timeout=TIMEOUT_S,
        ).raise_for_status()
        yield


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_what_a_document_shows_can_be_followed(
    name: str, reader: Reader, free_port: int, request: pytest.FixtureRequest
) -> None:
    """Every program and command in a document does what the text next to it shows."""
    if "gs://my-bucket" in (ROOT / name).read_text():
        request.getfixturevalue("my_bucket")

    for block in blocks(ROOT / name):
        reader.follow(dataclasses.replace(block, text=block.text.replace(LAB_PORT, f":{free_port}")))

    reader.finish()


@pytest.mark.parametrize("name", NAMES)
def test_every_block_of_a_document_is_of_a_kind_that_is_checked(name: str) -> None:
    """Every block of a document is in a language that is checked."""
    languages = {block.language for block in blocks(ROOT / name)}

    assert languages <= KNOWN_LANGUAGES


@pytest.mark.parametrize("name", NAMES)
def test_setup_commands_name_targets_and_extras_that_exist(name: str) -> None:
    """make targets and extras in documents exist."""
    text = "\n".join(block.text for block in blocks(ROOT / name) if block.language == "sh")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= targets
    assert set(re.findall(r'"(?:core-sdk|\.)\[([a-z]+)\]', text)) <= set(extras)


@pytest.mark.parametrize("name", NAMES)
def test_links_to_files_lead_somewhere(name: str) -> None:
    """Relative links in documents lead to files."""
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / name).read_text())

    missing = [link for link in links if not (ROOT / name).parent.joinpath(link).exists()]
    assert not missing


@pytest.mark.parametrize("name", NAMES)
def test_journal_lines_are_as_the_journal_writes_them(name: str, tmp_path: Path) -> None:
    """Journal lines in documents have valid checksums."""
    journal = tmp_path / "1.journal"
    journal.write_text("".join(block.text for block in blocks(ROOT / name) if block.language == "journal"))

    assert not [bad_line for chunk in read_journal(journal) for bad_line in chunk.bad_lines]


@pytest.mark.parametrize("name", NAMES)
def test_manifests_are_as_storages_write_them(name: str) -> None:
    """Manifests in documents are valid, with their checksums."""
    for block in blocks(ROOT / name):
        if block.language == "manifest":
            content = "".join(line.strip() for line in block.text.splitlines())
            decode_manifest(content.encode())


@pytest.mark.parametrize("name", NAMES)
def test_records_are_as_the_home_writes_them(name: str) -> None:
    """Records in documents are valid, with their checksums."""
    for block in blocks(ROOT / name):
        if block.language == "record":
            decode_file(block.text.strip().encode(), TrialRecord)


@pytest.mark.parametrize("name", NAMES)
def test_configurations_load(name: str) -> None:
    """Configurations in documents load without warnings."""
    for block in blocks(ROOT / name):
        if block.language == "yaml":
            assert load(block.text, source=name).warnings == ()


@pytest.mark.parametrize("name", NAMES)
def test_commands_named_in_the_text_exist(name: str) -> None:
    """Commands that are named in code spans exist."""
    named = re.findall(r"`core-sdk ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?", (ROOT / name).read_text())

    root = app
    for first, second in named:
        found = root.get_command(None, first)
        assert found is not None, first
        # What follows a command that is no group is an argument.
        is_group = hasattr(found, "list_commands")
        assert not second or not is_group or second in found.list_commands(None), f"{first} {second}"


def test_the_index_names_each_document() -> None:
    """The index of the documents names each of them."""
    links = set(re.findall(r"\]\(([^)#]+)", (ROOT / "docs" / "README.md").read_text()))

    assert {name for name in NAMES if name.startswith("docs/")} - {f"docs/{link}" for link in links} == {
        "docs/README.md"
    }


PATCHES = "docs/codebases.md"
"""Its diffs change files of other projects."""


def test_patches_call_what_exists() -> None:
    """Lines that are added to other projects' files call what a Context and the loop have."""
    text = "\n".join(block.text for block in blocks(ROOT / PATCHES) if block.language == "diff")
    called = set(re.findall(r"context\.(checkpoint|preempt)\.(\w+)\(", text))
    parts = {"checkpoint": core.CheckpointContext, "preempt": core.PreemptContext}

    assert called
    assert [name for part, name in called if not hasattr(parts[part], name)] == []
    assert [name for name in re.findall(r"\bloop\.(\w+)", text) if not hasattr(loop, name)] == []


@pytest.mark.parametrize("name", [name for name in NAMES if name != PATCHES])
def test_additions_in_diffs_stand_in_an_example(name: str) -> None:
    """Lines that a document adds in diffs stand in an example."""
    scripts = "\n".join(script.read_text() for script in (ROOT / "examples").glob("[0-9]_*.py"))
    diffs = [block.text for block in blocks(ROOT / name) if block.language == "diff"]

    added = [line[1:] for diff in diffs for line in diff.splitlines() if line.startswith("+")]
    # The one line that a script of another library changes, which no example needs.
    added = [line for line in added if line not in ("import core_sdk as det", "import core_sdk.compat.wandb as wandb")]
    assert [line for line in added if line not in scripts] == []


def blocks(document: Path) -> list[Block]:
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)
    return [Block(language, text) for language, text in fences]


def commands(console: str) -> list[tuple[str, str]]:
    """Commands of a console block, each with the output that is shown for it."""
    parts = re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]
    return [(command.strip(), output) for command, _, output in (part.partition("\n") for part in parts)]
