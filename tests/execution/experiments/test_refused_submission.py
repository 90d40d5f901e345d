"""Submitting where no master can be had."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

from core_sdk._execution.experiments._program import check_program
from core_sdk._execution.experiments.code import pack
from core_sdk._execution.experiments.submission import submit
from core_sdk._ground.config import load
from core_sdk._home import Home
from core_sdk.errors import HomeNotWritableError, InvalidConfigError

CONFIG = "entrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\n"


def test_an_experiment_that_no_master_begins_leaves_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no master can be started for a submission, its directory is removed and its number is free again."""
    monkeypatch.chdir(home.root)
    (home.root / "master.log").mkdir()  # keeps a master from being started

    with pytest.raises(OSError, match=r"master\.log"):
        submit(home, CONFIG, source="config.yaml")

    assert [path.name for path in home.experiments.iterdir()] == ["names"]
    assert home.allot_experiment().path == Path(home.experiments / "1")


def test_a_full_disk_is_told_with_the_home(home: Home, tmp_path: Path) -> None:
    """The error for a full disk names the home, and nothing of the experiment is left."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "data.bin").write_bytes(os.urandom(1 << 16))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, hard))
    try:
        with pytest.raises(
            HomeNotWritableError, match=f"cannot write to the home {home.root}: this process may not write"
        ):
            submit(home, CONFIG, source="config.yaml", model_dir=tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)

    assert [path.name for path in home.experiments.iterdir()] == ["names"]


def test_a_storage_that_cannot_be_written_to_is_refused(home: Home, tmp_path: Path) -> None:
    """A storage that cannot be written to is refused with its key in the configuration, and no experiment is left."""
    (tmp_path / "file").touch()
    config = f"{CONFIG}checkpoint_storage: {{type: directory, container_path: {tmp_path / 'file' / 'below'}}}\n"

    with pytest.raises(InvalidConfigError, match=r"checkpoint_storage.*file/below"):
        submit(home, config, source="config.yaml")

    assert not home.experiments.exists() or home.experiment_ids() == []


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        ("{type: s3, bucket: data, prefix: ../others}", r"the prefix '/../others' has '\.\.'"),
        ("{type: gcs, bucket: data, prefix: a/../../b}", r"has '\.\.'"),
        ("{type: azure, container: data/../others}", r"has '\.\.'"),
        ("{type: gcs, bucket: data, prefixes: a}", "has prefixes, which this version cannot honour"),
        ("{type: gcs, bucket: 5}", "bucket"),
        ("{type: s3, bucket: data, access_key: k}", "only one of access_key and secret_key"),
        ("{type: s3, bucket: data, endpoint_url: host}", "endpoint_url must be like"),
        ("{type: azure, container: data, credential: k}", "a credential without account_url"),
        ("{type: azure, container: data, connection_string: k, account_url: 'https://a.b'}", "one or the other"),
        ("{type: azure, container: data, connection_string: k, credential: k}", "one or the other"),
        ("{type: azure, container: data, account_url: a.b}", "account_url must be like"),
        ("azure://data/own?account_url=a.b", "account_url must be like"),
        ("s3://data/../others", r"has '\.\.'"),
        ("s4://data/others", "it is not the URL of a storage"),
    ],
)
def test_a_bucket_that_no_trial_could_open_is_refused(home: Home, storage: str, words: str) -> None:
    """An impossible bucket configuration is refused at once; a possible one is accepted without asking the bucket."""
    with pytest.raises(InvalidConfigError, match=rf"checkpoint_storage.*{words}") as caught:
        submit(home, f"{CONFIG}checkpoint_storage: {storage}\n", source="config.yaml")

    assert str(caught.value).count("checkpoint_storage") == 1
    submit(home, f"{CONFIG}checkpoint_storage: s3://data/own\n", source="config.yaml", is_paused=True)


@pytest.mark.parametrize(
    ("entrypoint", "is_missing"),
    [
        ("python3 train.py", True),
        ("python3 -u train.py --lr 1", True),
        ("python3 -m core_sdk.launch.torch_distributed python3 train.py", True),
        ("python3 train.py --lr=1", True),
        (f"python3 -m launch.torch_distributed {'word ' * 1000}-- 'there.py' --quoted", False),
        ("python3 there.py", False),
        ("python3 ./there.py", False),
        ("cd below && python3 train.py", False),
        ("python3 -m train", False),
    ],
)
def test_a_script_that_is_not_in_the_code_is_warned_of(
    home: Home, tmp_path: Path, entrypoint: str, is_missing: bool
) -> None:
    """A script that is missing in the code directory is warned about, unless a shell does more than start it."""
    (tmp_path / "there.py").touch()
    code = pack(Home.create(home.root), tmp_path)
    config = load(f"entrypoint: {entrypoint}\nsearcher: {{name: single, metric: loss}}\n", source="config.yaml").config

    warnings = check_program(config, code, "config.yaml")

    assert any("runs the script 'train.py', which is not in the code directory" in each for each in warnings) == (
        is_missing
    )
