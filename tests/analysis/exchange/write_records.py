"""Writes the records of other trackers that the tests import, with their own libraries.

In an empty environment: `pip install mlflow-skinny sqlalchemy alembic trackio wandb numpy`, and then
`python tests/analysis/exchange/write_records.py`.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
os.environ |= {"MLFLOW_ALLOW_FILE_STORE": "true", "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
os.environ["WANDB_DATA_DIR"] = "/tmp/wandb-data"  # the records name it


def write_mlflow(uri: str) -> None:
    import mlflow

    tags = {"team": "vision", "mlflow.user": "ada", "mlflow.source.name": "train.py"}
    mlflow.set_tracking_uri(uri)
    mlflow.create_experiment("digits", artifact_location="file:///data/artifacts")
    mlflow.set_experiment("digits")
    with mlflow.start_run(run_name="first", tags=tags, description="A *note*."):
        mlflow.log_params({"lr": 0.1, "opt": "adam", "layers": [64, 10], "seed": 3})
        for step in range(5):
            mlflow.log_metrics({"train/loss": 1 / (step + 1), "val/accuracy": step / 5}, step=step)
        mlflow.log_metrics({"high": float("inf"), "odd": float("nan")}, step=5)
    with mlflow.start_run(run_name="second", tags=tags) as run:
        mlflow.log_metric("loss", 0.5)
    mlflow.MlflowClient().set_terminated(run.info.run_id, "FAILED")
    with mlflow.start_run(run_name="third", tags=tags) as run:
        pass
    mlflow.delete_run(run.info.run_id)


def write_trackio(folder: Path) -> None:
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio

    trackio.init(project="digits", name="first", config={"lr": 0.1, "seed": 3}, group="sweep")
    for step in range(5):
        trackio.log({"train/loss": 1 / (step + 1), "val/accuracy": step / 5})
    trackio.log({"odd": float("nan"), "text": "hello", "nested": {"a": 1}})
    trackio.finish()


def write_fragments(folder: Path) -> Path:
    """Writes as trackio does on a network file system, in a process of its own, since it reads its mode once."""
    program = (
        "import trackio; trackio.init(project='digits', name='first', config={'lr': 0.1, 'seed': 3}, group='sweep');"
        "[trackio.log({'train/loss': 1 / (step + 1), 'z': -0.0}) for step in range(5)];"
        "trackio.log({'odd': float('nan'), 'text': 'hello', 'nested': {'a': {'b': 1}}}); trackio.finish()"
    )
    environment = os.environ | {"TRACKIO_DIR": str(folder), "TRACKIO_STORAGE_MODE": "jsonl"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    (fragment,) = folder.glob("inbox/*/*.jsonl")
    return fragment


def write_wandb(folder: Path) -> None:
    import numpy as np
    import wandb

    settings = wandb.Settings(
        console="off", host="node1", x_disable_meta=True, x_disable_stats=True, x_disable_machine_info=True,
        save_code=False, disable_git=True, program="train.py", root_dir=str(folder),
    )  # fmt: skip
    run = wandb.init(
        project="digits", name="first", config={"lr": 0.1, "opt": {"name": "adam"}, "seed": 3}, tags=["base"],
        notes="A *note*.", group="sweep", id="first0id", settings=settings,
    )  # fmt: skip
    for step in range(5):
        run.log({"train/loss": 1 / (step + 1), "val/accuracy": step / 5, "nested": {"a": step}})
    run.log({"image": wandb.Image(np.zeros((4, 4, 3), dtype=np.uint8), caption="black")})
    run.log({"histogram": wandb.Histogram([1, 2, 3, 3.5]), "text": "hello", "odd": float("nan")})
    run.log({"table": wandb.Table(columns=["a", "b"], data=[[1, "x"], [2, "y"]]), "html": wandb.Html("<b>x</b>")})
    run.log({"long": "x" * 70_000})
    run.summary["best"] = 0.9
    run.config.update({"late": 1})
    run.finish()
    run = wandb.init(project="digits", id="second0i", settings=settings)
    run.log({"loss": 0.5}, step=7)
    run.finish(exit_code=1)


def dump(database: Path, tables: tuple[str, ...], target: Path) -> None:
    """Writes these tables of a database as SQL. The whole file would have a megabyte of empty tables."""
    connection = sqlite3.connect(database)
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        if name not in tables and not name.startswith("sqlite_"):
            connection.execute(f'DROP TABLE "{name}"')
    # The first experiment of MLflow names the directory in which it was made.
    lines = [line for line in connection.iterdump() if "'Default'" not in line]
    target.write_text("\n".join(lines) + "\n")


def pack(folder: Path, target: Path) -> None:
    def nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uname = member.gname = ""
        member.uid = member.gid = 0
        left_out = ("logs", "tmp", "requirements.txt", "config.yaml")
        return None if any(part in left_out for part in Path(member.name).parts) or member.issym() else member

    with tarfile.open(target, "w:gz") as archive:
        archive.add(folder, folder.name, filter=nobodys)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        top = Path(made)
        os.chdir(top)
        write_mlflow((top / "mlruns").as_uri())
        shutil.rmtree(top / "mlruns/0", ignore_errors=True)
        pack(top / "mlruns", HERE / "mlruns.tar.gz")
        write_mlflow(f"sqlite:///{top}/mlflow.db")
        dump(top / "mlflow.db", ("experiments", "runs", "params", "metrics", "tags"), HERE / "mlflow.sql")
        write_trackio(top / "trackio")
        dump(top / "trackio/digits.db", ("metrics", "configs"), HERE / "trackio.sql")
        shutil.copyfile(write_fragments(top / "fragments"), HERE / "trackio.jsonl")
        write_wandb(top)
        pack(top / "wandb", HERE / "wandb.tar.gz")
