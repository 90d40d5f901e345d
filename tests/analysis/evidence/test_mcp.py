"""The Model Context Protocol's own client, and a server of a home that it starts."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from home.journals import new_trial, record, report
from parts import needs
from processes import wait_for

from core_sdk._analysis.evidence import MOST_BYTES
from core_sdk._home import Home, open_view

if TYPE_CHECKING:
    from mcp import Client

SCRIPT = """
from core_sdk import core
with core.init(name="digits") as context:
    context.train.report_training_metrics(1, {"loss": 0.5})
"""


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"parent": 7}, "there is no trial 7"),
    ({"command": ["no-such-program"]}, "no-such-program"),
    ({"time_limit": "soon"}, "'soon' is no time"),
    ({"directory": "."}, "'.' is no absolute path"),
    ({"directory": "/nowhere"}, "there is no directory /nowhere"),
]


async def call(client: Client, name: str, **arguments: Any) -> tuple[bool, str]:
    """Returns whether the call has failed, and its text, which is short and sent once."""
    answer = await client.call_tool(name, arguments)
    text = str(getattr(answer.content[0], "text", ""))
    assert answer.structured_content is None
    assert len(text.encode()) <= MOST_BYTES
    return bool(answer.is_error), text


def client_of(home: Home, *options: str) -> Client:
    from mcp import Client, StdioServerParameters

    command = ["-m", "core_sdk._interfaces.cli", "mcp", *options]
    variables = os.environ | {"CORE_SDK_HOME": str(home.root)}
    return Client(StdioServerParameters(command=sys.executable, args=command, env=dict(variables)))


@needs("mcp")
def test_a_client_reads_a_home(home: Home) -> None:
    """Lists, evidence and the tree are tools; without --write no tool changes anything, and errors have words."""
    for number in range(200):
        record(new_trial(home, lr=number), report(1, "validation", loss=1 / (number + 1)))

    async def visit() -> list[tuple[bool, str]]:
        async with client_of(home) as client:
            assert str(home.root) in str(client.instructions)
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools if not (tool.annotations and tool.annotations.read_only_hint)] == []
            return [
                await call(client, "list_trials", where="hparams.lr >= 198", names=["hparams.lr"]),
                await call(client, "list_trials"),
                await call(client, "trial_evidence", trial_id=3, metric="loss"),
                await call(client, "trial_evidence", trial_id=999),
                await call(client, "list_trials", where="hparams.lr = 9999"),
                await call(client, "list_trials", where="lr ="),
                await call(client, "list_trials", where=f"lr = 1 and {'x' * 100_000} = 1"),
                await call(client, "list_trials", where="state = COMPLETE"),
                await call(client, "list_trials", sort="-los"),
                await call(client, "list_trials", names=["hparams.rate"]),
                await call(client, "trial_evidence", trial_id=3, metric="x" * 100_000),
            ]

    some, every, evidence, unknown, none, wrong, *refused = asyncio.run(visit())

    assert [line.partition(",")[0] for line in some[1].splitlines()] == ['{"id": 200', '{"id": 199']
    assert "lines left out" in every[1]
    assert "best 1:0.333333" in evidence[1]
    assert unknown[0]
    assert "there is no trial 999" in unknown[1]
    assert wrong[0]
    assert "a value is missing" in wrong[1]
    assert none == (False, f"none of the 200 trials in the home {home.root}")
    assert [has_failed for has_failed, _ in refused] == [True] * 5
    assert "state is never 'COMPLETE', but one of ACTIVE" in refused[1][1]
    assert "no trial has a hyperparameter or a metric 'los'" in refused[2][1]


@needs("mcp")
def test_a_client_runs_and_judges_a_variation(home: Home, tmp_path: Path) -> None:
    """With --write a client starts a training in the background, and records what it decided."""
    (tmp_path / "train.py").write_text(SCRIPT)

    async def visit() -> None:
        async with client_of(home, "--write") as client:
            run = {"command": [sys.executable, "train.py"], "directory": str(tmp_path), "hypothesis": "it works"}
            for wrong, told in REFUSED:
                has_failed, text = await call(client, "run_variation", **run | wrong)
                assert has_failed, text
                assert told in text
            assert await call(client, "run_variation", **run) == (False, "1")
            wait_for(lambda: state() == "COMPLETED")
            assert (await call(client, "decide", trial_id=1, verdict="perhaps" * 1000))[0]
            assert await call(client, "decide", trial_id=1, verdict="keep", why="it did") == (False, "trial 1: keep")
            assert await call(client, "tree_of_trials", metric="loss") == (False, "1  keep  min.loss 0.5  it works")

    def state() -> str:
        with open_view(home) as view:
            return view.trial(1).state

    asyncio.run(visit())

    with open_view(home) as view:
        assert (view.trial(1).verdict, view.trial(1).verdict_reason) == ("keep", "it did")


@needs("mcp")
def test_a_client_tries_and_judges(home: Home, tmp_path: Path) -> None:
    """A study is begun by a command, and then led by tools: each answers once, in 4 KB, and errors have words."""
    (tmp_path / "train.py").write_text(
        "from core_sdk import core\nwith core.init() as context:\n"
        "    seed = context.info.trial.trial_seed\n"
        "    context.train.report_validation_metrics(1, {'accuracy': 0.5 + seed / 100})\n"
    )
    begin = ["study", "begin", "digits", "--metric", "accuracy", "--larger-is-better", "--seeds", "2"]
    begun = subprocess.run(
        [sys.executable, "-m", "core_sdk._interfaces.cli", *begin],
        cwd=tmp_path,
        env=os.environ | {"CORE_SDK_HOME": str(home.root)},
        capture_output=True,
    )
    assert begun.returncode == 0

    async def visit() -> None:
        async with client_of(home, "--write") as client:
            tried = {"hypothesis": "as it is", "directory": str(tmp_path), "command": [sys.executable, "train.py"]}
            has_failed, text = await call(client, "try_code", **tried)
            assert not has_failed
            assert "try 1: accuracy 0.5050 ± 0.0071 (n = 2 of 2)" in text
            has_failed, text = await call(client, "try_code", **tried)
            assert has_failed
            assert "tried as 1: ended, 0.5050 ± 0.0071 (n = 2)" in text
            assert await call(client, "verdict", try_id=1, decision="keep", why="first") == (False, "try 1: keep")
            assert "1*  n=2  0.5050 ± 0.0071  keep  as it is" in (await call(client, "board", study="digits"))[1]
            assert "sha256" in (await call(client, "code", try_id=1))[1]
            assert "there is no study 'letters'" in (await call(client, "board", study="letters"))[1]
            assert "there is no trial 99" in (await call(client, "stop", trial_id=99))[1]

    asyncio.run(visit())


@needs("mcp")
def test_the_configurations_in_the_documents_start_the_server(tmp_path: Path) -> None:
    """Each client's configuration starts a server of its home, with the tools that try code."""
    from mcp import Client, StdioServerParameters

    document = (Path(__file__).resolve().parents[3] / "docs" / "agents.md").read_text()
    claude, *lines = document.partition("```sh\nclaude mcp add")[2].partition("```")[0].strip().splitlines()
    variables = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for line in lines:
        subprocess.run(["sh", "-c", line], cwd=tmp_path, check=True)
    configured = {
        name: next(iter(json.loads((tmp_path / path).read_text())[key].values()))
        for name, path, key in (
            ("Cursor", ".cursor/mcp.json", "mcpServers"),
            ("VS Code", ".vscode/mcp.json", "servers"),
        )
    }
    # What Claude Code makes of its line.
    (told,) = re.findall(r"--env (\S+) -- ", claude)
    name, _, value = told.replace('"', "").replace("$PWD", str(tmp_path)).partition("=")
    command, *arguments = claude.partition(" -- ")[2].split()
    configured["Claude Code"] = {"command": command, "args": arguments, "env": {name: value}}

    async def visit(server: dict[str, Any]) -> tuple[str, set[str]]:
        env = dict(variables | server["env"])
        parameters = StdioServerParameters(command=server["command"], args=server["args"], env=env, cwd=tmp_path)
        async with Client(parameters) as client:
            return str(client.instructions), {tool.name for tool in (await client.list_tools()).tools}

    for client_name, server in configured.items():
        instructions, tools = asyncio.run(visit(server))
        assert str(tmp_path / "home") in instructions, client_name
        assert {"try_code", "wait", "board", "verdict"} <= tools, client_name
