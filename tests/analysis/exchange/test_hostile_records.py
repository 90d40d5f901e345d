"""Whatever lies in place of a file of another tracker: an import ends, and reads nothing outside of its folder."""

from __future__ import annotations

import os
import sqlite3
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from analysis.exchange.records import RECORDS, curve, imported
from torch.utils.tensorboard import SummaryWriter

from core_sdk._analysis.exchange.wandb.messages import Record
from core_sdk._home import Home

SECRET = "the-secret-of-another-folder"
DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000


def a_fifo(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def a_device(path: Path, outside: Path) -> None:
    path.symlink_to("/dev/zero")


def a_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "secret.txt")


def a_link_to_nothing(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "nothing")


def a_folder(path: Path, outside: Path) -> None:
    path.mkdir()


def a_huge_file(path: Path, outside: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 36)


def nested_json(path: Path, outside: Path) -> None:
    path.write_bytes(DEEP)


def nested_yaml(path: Path, outside: Path) -> None:
    path.write_bytes(b"[" * 10_000)


def a_yaml_bomb(path: Path, outside: Path) -> None:
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 20)]
    path.write_text(
        "\n".join(["a0: &a0 xxxxxxxxx", *levels, "name: *a19", "run_name: *a19", "run_id: *a19", "status: *a19"])
    )


def long_numbers(path: Path, outside: Path) -> None:
    path.write_bytes(b"9" * 400 + b" " + b"9" * 400 + b" " + b"9" * 400 + b"\n")


def odd_bytes(path: Path, outside: Path) -> None:
    path.write_bytes(b"\xff\x00\xed\xa0\x80" * 100)


HOSTILE = (
    a_fifo, a_device, a_link, a_link_to_nothing, a_folder, a_huge_file, nested_json, nested_yaml, a_yaml_bomb,
    long_numbers, odd_bytes,
)  # fmt: skip


def event_files(directory: Path) -> Path:
    with SummaryWriter(str(directory / "logs")) as writer:
        writer.add_scalar("loss", 1.0, 0)
    return directory / "logs"


SOURCES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a parameter of MLflow": (RECORDS["mlflow-folder"], "*/*/params/lr"),
    "the parameters of MLflow": (RECORDS["mlflow-folder"], "*/*/params"),
    "a tag of MLflow": (RECORDS["mlflow-folder"], "*/*/tags/team"),
    "a metric of MLflow": (RECORDS["mlflow-folder"], "*/*/metrics/train/loss"),
    "a run of MLflow": (RECORDS["mlflow-folder"], "*/*/meta.yaml"),
    "an experiment of MLflow": (RECORDS["mlflow-folder"], "*/meta.yaml"),
    "a database of MLflow": (RECORDS["mlflow-database"], ""),
    "a log of wandb": (RECORDS["wandb"], "*/*.wandb"),
    "an image of wandb": (RECORDS["wandb"], "*/files/media/images/*.png"),
    "a table of wandb": (RECORDS["wandb"], "*/files/media/table/*.json"),
    "a database of trackio": (RECORDS["trackio"], ""),
    "a fragment of trackio": (RECORDS["trackio-inbox"], "inbox/*/*.jsonl"),
    "an event file": (event_files, "events*"),
}


@pytest.mark.parametrize("source", SOURCES)
def test_an_import_ends_whatever_a_file_is(source: str, tmp_path: Path) -> None:
    """Nothing hangs, fills the memory, or is read through a link; what else lies there is imported."""
    make, pattern = SOURCES[source]
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(SECRET)
    for hostile in HOSTILE:
        below = tmp_path / hostile.__name__
        below.mkdir()
        made = make(below)
        path = next(made.glob(pattern)) if pattern else made
        path.rename(outside / hostile.__name__)
        hostile(path, outside)
        event_files(below / "others")
        home = Home.create(below / "home")

        taken = imported(home, below)

        assert any(each.run.where.endswith("others/logs") and each.trial_id for each in taken), hostile.__name__
        kept = [file.read_bytes() for file in home.root.rglob("*") if file.is_file()]
        assert not any(SECRET.encode() in content for content in kept), hostile.__name__


def test_a_linked_folder_is_not_entered(tmp_path: Path) -> None:
    """A link in place of the folder of parameters would make hyperparameters of any folder's files."""
    made = RECORDS["mlflow-folder"](tmp_path)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key").write_text(SECRET)
    for params in list(made.glob("*/*/params")):
        params.rename(tmp_path / f"gone-{params.parent.name}")
        params.symlink_to(tmp_path / "outside")
    home = Home.create(tmp_path / "home")

    (first, *_) = (each.trial_id for each in imported(home, made) if each.trial_id)

    assert home.folder(first).read_record().hparams == {}


@pytest.mark.parametrize(
    "value",
    [DEEP, b"[" * 5000 + b"]" * 5000, b'{"a":' * 200 + b"1" + b"}" * 200, b"9" * 10_000, b"[1]", b"1", b"{", b"\xff"],
    ids=lambda value: value[:6].decode(errors="replace"),
)
def test_odd_json_in_a_database_is_left_out(value: bytes, tmp_path: Path) -> None:
    """Of a run whose configuration or one of whose rows is odd, the other rows are imported, and the loss is said."""
    path = RECORDS["trackio"](tmp_path)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE metrics SET metrics = ? WHERE step = 2", (value,))
        database.execute("UPDATE metrics SET metrics = ? WHERE step = 3", (b'{"odd": ' + value + b"}",))
        database.execute("UPDATE configs SET config = ?", (value,))
    database.close()
    home = Home.create(tmp_path / "home")

    (taken,) = imported(home, path)

    assert [step for step, _ in curve(home, 1, "training", "loss")] == [0, 1, 4]
    assert any("configuration" in loss or "hyperparameter" in loss for loss in taken.run.losses)
    assert any("rows are damaged" in loss for loss in taken.run.losses)


def test_odd_values_in_the_columns_of_mlflow_are_left_out(tmp_path: Path) -> None:
    """SQLite keeps a text in a column of numbers; such rows are counted."""
    path = RECORDS["mlflow-database"](tmp_path)
    with sqlite3.connect(path) as database:
        for column in ("timestamp", "step", "value"):
            database.execute(
                f"INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan) "
                f"SELECT 'odd {column}', 1.0, 1, run_uuid, 1, 0 FROM runs WHERE name = 'first'"
            )
            database.execute(f"UPDATE metrics SET {column} = 'x' WHERE key = 'odd {column}'")
        database.execute("UPDATE runs SET start_time = 'then', end_time = 'now' WHERE name = 'first'")
    database.close()
    home = Home.create(tmp_path / "home")

    taken = imported(home, path)

    assert any("3 rows of its metrics are damaged" in loss for each in taken for loss in each.run.losses)
    assert len(taken) == 2


def test_nested_json_in_a_log_of_wandb_is_left_out(tmp_path: Path) -> None:
    """A value of JSON that is nested without end ends neither the run nor the import."""
    messages = []
    for step, value in enumerate(["0.5", '{"a":' * 4000 + "1" + "}" * 4000, "-0"]):
        record = Record()
        record.history.item.add(key="loss", value_json=value)
        record.history.item.add(key="_timestamp", value_json="1.0")
        record.history.step.num = step
        messages.append(record.SerializeToString())
    write_log(tmp_path / "run-deep.wandb", messages)
    home = Home.create(tmp_path / "home")

    (taken,) = imported(home, tmp_path / "run-deep.wandb")

    points = curve(home, 1, "training", "loss")
    assert [(step, str(value)) for step, value in points] == [(0, "0.5"), (2, "-0.0")]
    assert any("was left out: a value is nested too deep" in loss for loss in taken.run.losses)


def write_log(path: Path, messages: list[bytes]) -> None:
    """Writes a log of wandb with these messages, which fit into one block."""
    parts = [struct.pack("<IHB", zlib.crc32(each, zlib.crc32(b"\x01")), len(each), 1) + each for each in messages]
    path.write_bytes(b":W&B\x00\x00\x00" + b"".join(parts))
