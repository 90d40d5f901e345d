"""Names of wandb: what a script needs that is missing is told before it runs; pages, curves and messages are there."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from interfaces.cli.commands import WarmCli
from sklearn.metrics import precision_recall_curve, roc_curve

import core_sdk.compat.wandb as wandb
from core_sdk.client import Tracker
from core_sdk.compat.wandb._checking import missing_names


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import wandb\nwandb.log({}); wandb.run.name; wandb.config.lr; wandb.plot.bar; wandb.Image.anything", []),
        ("import wandb\nwandb.sweep({})\nwandb.Object3D(1)", ["2 wandb.sweep", "3 wandb.Object3D"]),
        ("import wandb as w\nw.plot.foo(1)\nw.plot.foo.more", ["2 wandb.plot.foo", "3 wandb.plot.foo"]),
        ("import core_sdk.compat.wandb as wandb\nwandb.agent", ["2 wandb.agent"]),
        ("import core_sdk.compat.wandb\ncore_sdk.compat.wandb.agent", ["2 wandb.agent"]),
        ("from core_sdk.compat import wandb\nwandb.agent", ["2 wandb.agent"]),
        ("from wandb import Image as I, agent\nI.x\nagent()", ["1 wandb.agent"]),
        ("from wandb.integration.keras import Callback", ["1 wandb.integration"]),
        ("from wandb import *", []),
        ("if True:\n    def f():\n        import wandb.sdk.lib", ["3 wandb.sdk"]),
        ("import core_sdk\ncore_sdk.core.init().train.agent; from . import wandb\nwandb.agent", None),
        ("wandb = None\nwandb.agent", None),
    ],
)
def test_names_that_are_missing_are_found_in_the_source(source: str, names: list[str] | None) -> None:
    """Each name behind an import of wandb, or of ours, is looked up, with its line."""
    found = missing_names(source)

    told = None if found is None else [f"{line} {text.split(':')[0].split()[-1]}" for line, text in found]
    assert told == names


def test_every_name_of_the_module_is_there() -> None:
    """What `dir()` lists can be read, or belongs to a run, so that nothing is called missing that is not."""
    listed = set(dir(wandb))

    assert listed >= {*wandb.__all__, "log", "config", "summary", "run", "watch"}
    assert missing_names("import wandb\n" + "\n".join(f"wandb.{name}" for name in listed)) == []


def test_a_command_checks_scripts(tmp_path: Path, warm_cli: WarmCli) -> None:
    """`core-sdk check-wandb` prints places and what to use instead, and its status says whether anything is missing."""
    (tmp_path / "good.py").write_text("import wandb\nwandb.init().log({})\n")
    (tmp_path / "bad.py").write_text("import wandb\n\nwandb.sweep({})\n")
    (tmp_path / "none.py").write_text("print(1)\n")
    (tmp_path / "torn.py").write_text("print(\n")

    good = warm_cli.run(tmp_path, "check-wandb", "good.py", "none.py")
    bad = warm_cli.run(tmp_path, "check-wandb", "good.py", "bad.py")
    torn = warm_cli.run(tmp_path, "check-wandb", "torn.py")

    assert (good.status, good.output) == (0, "")
    assert "good.py: nothing is missing" in good.errors and "none.py: it does not import wandb" in good.errors
    assert bad.status == 1
    assert bad.output.startswith("bad.py:3: core_sdk.compat.wandb has no wandb.sweep: a search of")
    assert torn.status == 2 and "torn.py is no script of Python" in torn.errors


def test_pages_of_html_are_media(tmp_path: Path) -> None:
    """HTML is taken as text, from an open file, or from the file of a path."""
    (tmp_path / "page.html").write_text("<b>file</b>")
    with wandb.init() as run:
        run.log(
            {
                "text": wandb.Html("<b>text</b>"),
                "open": wandb.Html(io.StringIO("<b>open</b>"), inject=False),
                "path": wandb.Html(str(tmp_path / "page.html")),
                "as it is": wandb.Html("page.html", data_is_not_path=True),
            }
        )

    (report,) = Tracker().get_trial(1).iter_metrics("training")
    assert {name: (file.kind, file.media_type) for name, file in report.metrics.items()} == dict.fromkeys(
        ["text", "open", "path", "as it is"], ("figure", "text/html")
    )


def test_curves_of_classifiers_are_tables() -> None:
    """The points of the curves are scikit-learn's, for each class that is chosen, by its label."""
    random = np.random.default_rng(0)
    true = random.integers(0, 3, 200)
    probas = random.random((200, 3)).round(2)

    found = wandb.plot.roc_curve(true, probas, labels=["a", "b", "c"], classes_to_plot=[0, 2])
    exact = wandb.plot.pr_curve(true.tolist(), probas.tolist())

    assert found.columns == ["class", "fpr", "tpr"] and exact.columns == ["class", "precision", "recall"]
    assert set(found.get_column("class")) == {"a", "c"} and set(exact.get_column("class")) == {0, 1, 2}
    fpr, tpr, _ = roc_curve(true, probas[:, 2], pos_label=2, drop_intermediate=False)
    points = [row[1:] for row in found.data if row[0] == "c"]
    assert np.allclose(points, np.stack([fpr, tpr], axis=1))
    precision, recall, _ = precision_recall_curve(true == 1, probas[:, 1])
    points = [row[1:] for row in exact.data if row[0] == 1]
    assert np.allclose(points, np.stack([precision, recall], axis=1)[-2::-1])
    many = wandb.plot.roc_curve(np.arange(20_000) % 2, np.stack([np.arange(20_000)] * 2, axis=1) / 20_000)
    assert len(many.data) <= 2002 and many.data[-1][1:] == [1.0, 1.0]


def test_messages_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Messages have wandb's prefix, and are printed once if asked for."""
    wandb.termlog("a\nb")
    wandb.termwarn("only once", repeat=False)
    wandb.termwarn("only once", repeat=False)
    wandb.termerror("c", newline=False, prefix=False)

    assert capsys.readouterr().err == "wandb: a\nwandb: b\nwandb: WARNING only once\nERROR c"
