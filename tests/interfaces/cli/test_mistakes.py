"""What newcomers get wrong: what they type, what is said, and the exit status. Nobody is left without a next step."""

from __future__ import annotations

import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest
from interfaces.cli.commands import WarmCli

SCRIPT = """\
import core_sdk as det

with det.core.init(name="digits", hparams={"lr": 0.1}) as core_context:
    core_context.train.report_training_metrics(1, {"loss": 1.0})
    core_context.train.report_validation_metrics(1, {"accuracy": 0.5})
"""
UNKNOWN = "11111111-1111-1111-1111-111111111111"


class Command(NamedTuple):
    arguments: str
    says: str
    status: int


COMMANDS = [
    Command("run train.py", "put `--` before the command: core-sdk run -- train.py", 2),
    Command("run --name x train.py", "put `--` before the command: core-sdk run --name x -- train.py", 2),
    Command("run --seed=1", "put `--` before the command: core-sdk run --seed=1 -- python train.py", 2),
    Command("run --nmae x train.py", "(Did you mean one of: '--name', '--nodes'", 2),
    Command("run --nmae x -- python train.py", "(Did you mean one of: '--name', '--nodes'", 2),
    Command("run --hparam lr -- python train.py", "'lr' is not NAME=VALUE", 2),
    Command("run --hparam lr=[1 -- python train.py", "--hparam lr=[1: this is not YAML", 2),
    Command("run --hparam a=1 b=2 -- python train.py", "'b=2' stands before `--`, and no option takes it", 2),
    Command("trial continue 1 --hparam a=1 b=2 -- python train.py", "'b=2' stands before `--`", 2),
    Command("run --hparam 'lr = 0.1' -- python train.py", "has a blank at its end: write lr=0.1", 2),
    Command("run -- pythn train.py", "there is no program 'pythn'", 127),
    Command("run -- python trian.py", "can't open file", 2),
    Command("run -- train.py", "A script is started by its interpreter: `python train.py`", 127),
    Command(
        "run --nproc 2 -- python train.py", "a launcher starts several ranks: core-sdk run -- python -m launch.", 2
    ),
    Command("ls", "Did you mean `core-sdk trial ls`?", 2),
    Command("logs 1", "Did you mean `core-sdk trial logs`?", 2),
    Command("stop 1", "Did you mean `core-sdk trial pause`?", 2),
    Command("experiment rename digits x", "Did you mean `core-sdk experiment set`?", 2),
    Command("trials list", "Did you mean `core-sdk trial`?", 2),
    Command("trial show 1", "Did you mean `core-sdk trial describe`?", 2),
    Command("trial describe 99", "`core-sdk trial list` shows those that exist", 3),
    Command("experiment describe 99", "`core-sdk experiment list` shows those that exist", 3),
    Command(f"checkpoint describe {UNKNOWN}", "`core-sdk checkpoint list` shows those that exist", 3),
    Command("trial list --where lrr>0.1", "did you mean lr?", 2),
    Command("trial list --where state=COMPLETE", "state is never 'COMPLETE', but one of ACTIVE, QUEUED,", 2),
    Command("trial list --sort accuracyy", "did you mean accuracy?", 2),
    Command("trial metrics 1 --metric los", "The metrics: loss, accuracy.", 3),
    Command("trial plot 1 --metric los", "The metrics: loss, accuracy.", 3),
    Command("trial pause 1", "`core-sdk trial describe 1` shows how it ended", 1),
    Command("trial kill 1", "`core-sdk trial describe 1` shows how it ended", 1),
    Command("trial resume 1", "`core-sdk trial resume 1 --again`", 1),
    Command("trial continue 1", "it has no checkpoint", 1),
    Command("trial continue 1 --steps 2", "No such option '--steps'", 2),
    Command("trial continue 1 --hparam lr=1 train.py", "core-sdk trial continue 1 --hparam lr=1 -- train.py", 2),
    Command("trial resume 1 2", "put `--` before the command: core-sdk trial resume 1 -- 2", 2),
    Command("experiment best digits", "no searcher's metric; --metric names one of: accuracy", 2),
    Command("experiment best digits --metric acuracy", "for acuracy; --metric names one of: accuracy", 2),
    Command("experiment create nofile.yaml .", "file 'nofile.yaml' does not exist", 2),
    Command("experiment create . train.py", "file '.' is a directory", 2),
    Command("ui --host 0.0.0.0", "Give a token of your own with --token", 2),
    Command("ui --port x", "Invalid value for '--port'", 2),
    Command("plot 1", "Did you mean `core-sdk trial plot`?", 2),
    Command("list", "Did you mean `core-sdk trial list`?", 2),
    Command("delete 1", "Did you mean `core-sdk trial delete`?", 2),
    Command("master start", "Did you mean `core-sdk master up`?", 2),
    Command("index rebiuld", "Did you mean `core-sdk index rebuild`?", 2),
    Command("trial tag 1 paper", "Did you mean `core-sdk trial label`?", 2),
    Command("trial set-label 1 paper", "Did you mean `core-sdk trial label`?", 2),
    Command("trial label 1", "give the numbers of trials, then labels", 2),
    Command("trial delete", "give the numbers of trials, or --where, one of them", 2),
    Command("trial delete 1 --where lr>0", "give the numbers of trials, or --where, one of them", 2),
    Command("trial archive nobody", "there is no trial 'nobody'", 3),
    Command("trial resume nobody", "`core-sdk trial list` shows those that exist", 3),
    Command("trial list --where lr=>1", "a value is missing", 2),
    Command("trial list --where lr>0.1&&lr<1", "`and` or `or` is missing", 2),
    Command("trial list --json --csv", "give --json or --csv, not both", 2),
    Command("trial list --experiment nothing", "`core-sdk experiment list` shows those that exist", 3),
    Command("trial list --column lrr", "did you mean lr?", 2),
    Command("trial logs 1", "only `core-sdk run` and `core-sdk trial resume` keep the output", 1),
    Command("trial logs 1 --level loud", "'loud' is none of DEBUG, INFO", 2),
    Command("trial metrics 1 --group tset", "Its groups: training, validation", 3),
    Command("trial metrics 1 --rank x", "writer x of trial 1 has reported nothing. Who has reported: 0", 1),
    Command("trial download 1", "trial 1 has no checkpoint", 2),
    Command("trial plot 1 -o curves.jpg", "must end in .svg, .html, .pdf, .png", 2),
    Command("trial media 1 --kind picture", "'picture' is none of image, audio", 2),
    Command("compare", "give the numbers of trials, or --experiment, --where or --first", 2),
    Command("compare 1 99", "`core-sdk trial list` shows those that exist", 3),
    Command("compare --group-by lrr", "did you mean lr?", 2),
    Command("compare --group-by lr --best accuracy", "give min.METRIC or max.METRIC", 2),
    Command("checkpoint download x", "`core-sdk checkpoint list` shows those that exist", 3),
    Command("experiment activate digits", "`core-sdk trial resume ID` goes on with a trial that is paused", 1),
    Command("experiment pause digits", "none of its trials is running", 1),
    Command("model describe nothing", "`core-sdk model list` shows those that exist", 3),
    Command("home merge nowhere", "nowhere is not the folder of another home", 2),
]


class Config(NamedTuple):
    yaml: str
    says: str
    status: int = 2


SINGLE = "entrypoint: python train.py\nsearcher: {name: single, metric: loss}\n"
CONFIGS = [
    Config(f"{SINGLE}resorces: {{}}", "resorces is unknown here; did you mean resources?"),
    Config("entrypoint: python train.py\nsearcher: {name: singel, metric: loss}", "did you mean single?"),
    Config(f"{SINGLE}hyperparameters: {{lr: {{type: double, minval: 3, maxval: 1}}}}", "must be less than maxval, 1"),
    Config("searcher: {name: single, metric: loss}", "entrypoint is missing: the command of each trial"),
    Config(f"{SINGLE}resources: {{slots_per_trial: two}}", "slots_per_trial must be an int of at least 0"),
    Config("entrypoint: python train.py\nsearcher:\n\tname: single", "here is a tab; indent with spaces"),
    Config("entrypoint: python train.py\nsearcher: {name: asha, metric: loss, max_trials: 4}", "max_time"),
    Config("entrypoint: python train.py\n searcher: {name: single}", "the indentation may be wrong"),
]


class Program(NamedTuple):
    source: str
    says: str
    status: int = 1


def within(line: str) -> str:
    return f"import core_sdk as det\nwith det.core.init() as core_context:\n    {line}\n"


def reporting(arguments: str) -> str:
    return within(f"core_context.train.report_training_metrics({arguments})")


STORE = "core_context.checkpoint.store_path({'steps_completed': 1})"
RESTORE = "core_context.checkpoint.restore_path"
PROGRAMS = [
    Program(reporting("True, {'loss': 1.0}"), "steps_completed is True, a bool; it must be an int"),
    Program(reporting("2.0, {'loss': 1.0}"), "steps_completed is 2.0, a float; it must be an int"),
    Program("import core_sdk\ncore_sdk.core.init(steps_completed=True)", "steps_completed is True, a bool; it must be"),
    Program(within(f"with {STORE} as path: (path / 'a').touch()"), "write `with ….store_path(…) as (path, storage_id)"),
    Program(within(f"path, storage_id = {STORE}"), "write `with ….store_path(…) as (path, storage_id):`"),
    Program(within(f"open({STORE}, 'w')"), "write `with ….store_path(…) as (path, storage_id):`"),
    Program(within(STORE), "a call did nothing, for it stands without `with`", 0),
    Program(within(f"with {RESTORE}(None): pass"), "`info.latest_checkpoint` is None in a training that begins"),
    Program(within(f"{RESTORE}('a') / 'model.pt'"), "write `with ….restore_path(…) as path:`"),
    Program(reporting("1, {'loss': '0.5'}"), "metric 'loss' of group 'training' is a str; a metric is a number"),
    Program(reporting("1, {'loss': None}"), "metrics that are None are left out", 0),
    Program(reporting("1, {'loss': [1.0, 2.0]}"), "is a list; a metric is a number"),
    Program(reporting("1, {'loss': {'a': 1}}"), "is a dict; a metric is a number"),
    Program(reporting("1, {'loss': float('nan')}"), "", 0),
    Program(reporting("-1, {'loss': 1.0}"), "steps_completed is -1; it must be between 0 and"),
    Program(reporting("'1', {'loss': 1.0}"), "steps_completed is '1', a str; it must be an int"),
    Program(within("core_context.train.report_progress(50)"), "progress is 50.0; it must be between 0 and 1"),
    Program(
        within("with core_context.checkpoint.store_path({'steps_completed': 1}) as p: p / 'x'"),
        "as (path, storage_id)",
    ),
    Program(
        "import core_sdk as det\ndet.core.DistributedContext.from_torch_distributed()",
        "python -m launch.torch_distributed",
    ),
    Program(within("core_context.checkpoint.store_path().__enter__()"), 'pass {"steps_completed": …}'),
    Program("import core_sdk as det\ndet.core.init().preempt.should_preempt()", "Use `with core_sdk.core.init()"),
    Program("import core_sdk\ncore_sdk.init()", "no attribute 'init'; did you mean core_sdk.core.init?"),
    Program(within("core_context.log({'loss': 1.0})"), "did you mean train.report_training_metrics(steps_completed, m"),
    Program(within("core_context.should_preempt()"), "did you mean preempt.should_preempt?"),
    Program("from core_sdk import loop\nloop.State(object())", "needs a name for each object, as in State(model=model"),
    Program("import core_sdk as det\ndet.core.init(project='x')", "no argument 'project'; did you mean name?"),
    Program("import core_sdk as det\ndet.core.init(hparam={})", "no argument 'hparam'; did you mean hparams?"),
    Program("import core_sdk as det\ndet.core.init(name='')", "the experiment's name '' is empty"),
    Program("import core_sdk as det\ndet.core.init(checkpoint_storage='ftp://x/y')", "write file:///directory, gs://"),
    Program(
        "import pathlib, core_sdk as det\nwith det.core.init(hparams={'data': pathlib.Path('x')}): pass",
        "too long for lists and charts: hparams['data']",
        0,
    ),
    Program(reporting("step=1, metrics={'loss': 1.0}"), "argument 'step'; did you mean steps_completed?"),
    Program(reporting("1, loss=1.0"), "keyword argument 'loss'; there are steps_completed, metrics, batch_metrics"),
    Program(reporting("{'loss': 1.0}, 1"), "steps_completed is {'loss': 1.0}, a dict; it must be an int"),
    Program(reporting("1, {1: 1.0}"), "the metric name in group 'training' must be a string, not int"),
    Program(
        within("core_context.train.report_progress('50%')"), "progress is '50%'; it must be a number between 0 and"
    ),
    Program(within("core_context.store_path()"), "did you mean checkpoint.store_path?"),
    Program(
        within("with core_context.checkpoint.store_path({'steps_completed': 1}) as (path, i): open(path, 'wb')"),
        "store_path() gives a directory: name a file in it",
    ),
    Program(
        "import torch\n"
        + within("with core_context.checkpoint.store_path({'steps_completed': 1}) as (path, i): torch.save(1, path)"),
        "store_path() gives a directory: name a file in it",
    ),
    Program(
        within(
            "with core_context.checkpoint.store_path({'steps_completed': 1}) as (path, i): (path / 'x').touch()\n"
            "    with core_context.checkpoint.restore_path(i) as path: open(path)"
        ),
        "restore_path() gives a directory: name a file in it",
    ),
    Program(
        within("core_context.checkpoint.restore_path('x').__enter__()"),
        "`core-sdk checkpoint list` shows those that exist",
    ),
    Program("from core_sdk import loop\nloop.State(x={}).save(None, step=1)", "did you mean steps_completed?"),
    Program("from core_sdk import loop\nloop.State(x=5)", "keep values in a dict, such as State(x={'value': …})"),
    Program("from core_sdk import loop\nloop.resumable([1])", "give a DataLoader of torch"),
    Program("import core_sdk as det\ndet.core.init('digits')", "init() takes its arguments by name: distributed"),
    Program("import core_sdk as det\ndet.core.init(deadline='1h')", "a number of seconds, a timedelta or a datetime"),
    Program("import core_sdk as det\ndet.core.init(labels='paper')", "it must be a list of labels"),
    Program("import core_sdk as det\ndet.core.init(max_length={'epoch': 3})", "it can count epochs, records or batch"),
    Program("from core_sdk import client\nclient.get_trial('x')", "there is no trial 'x'"),
    Program("from core_sdk import client\nclient.get_trial(99)", "`core-sdk trial list` shows those that exist"),
    Program("from core_sdk import client\nclient.get_experiment(99)", "`core-sdk experiment list` shows those that"),
    Program("from core_sdk import client\nclient.get_checkpoint('x')", "`core-sdk checkpoint list` shows those that"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a script, and a home in which it has been run once."""
    directory = tmp_path_factory.mktemp("mistakes")
    (directory / "train.py").write_text(SCRIPT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORE_SDK_HOME", str(directory / "home"))
        subprocess.run([sys.executable, "train.py"], cwd=directory, check=True)
    return directory


@pytest.fixture(autouse=True)
def in_that_home(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.setenv("CORE_SDK_HOME", str(place / "home"))


@pytest.mark.parametrize("mistake", COMMANDS, ids=lambda mistake: mistake.arguments)
def test_a_command_says_what_to_type_instead(mistake: Command, place: Path, warm_cli: WarmCli) -> None:
    """Each mistyped command is answered with what is wrong and what there is."""
    ended = warm_cli.run(place, *shlex.split(mistake.arguments))

    assert mistake.says in ended.output + ended.errors
    assert ended.status == mistake.status


@pytest.mark.parametrize("mistake", CONFIGS, ids=lambda mistake: mistake.says)
def test_a_configuration_is_refused_by_line_and_key(mistake: Config, place: Path, warm_cli: WarmCli) -> None:
    """A bad configuration is refused with its line and key."""
    (place / "search.yaml").write_text(mistake.yaml)

    ended = warm_cli.run(place, "experiment", "create", "search.yaml", ".")

    assert mistake.says in ended.errors
    assert ended.status == mistake.status


@pytest.mark.parametrize("mistake", PROGRAMS, ids=lambda mistake: mistake.says or "NaN")
def test_a_script_ends_with_what_to_write_instead(mistake: Program, place: Path) -> None:
    """A mistake in a script ends with a last line, or a warning, that says what to write instead."""
    source = textwrap.dedent(mistake.source)

    ended = subprocess.run([sys.executable, "-c", source], cwd=place, capture_output=True, text=True)

    assert mistake.says in ended.stderr
    assert ended.returncode == mistake.status
