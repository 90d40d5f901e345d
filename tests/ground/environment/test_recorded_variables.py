"""What is kept of the environment: what a resume needs, and no secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core_sdk._ground.environment import passed_variables, recorded_variables
from core_sdk._ground.environment._children import _RECORDED_NAMES, _RECORDED_PREFIXES

VARIABLES_PAGE = Path(__file__).resolve().parents[3] / "docs" / "variables.md"


def test_settings_are_kept() -> None:
    """Settings are recorded by name or prefix, even if their names contain KEY or TOKEN."""
    variables = {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_DEBUG": "INFO",
        "NCCL_IB_PKEY": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }

    assert recorded_variables(variables) == variables


@pytest.mark.parametrize(
    "name",
    [
        *("GLOO_PW", "DS_AUTH", "TORCH_DB_PWD", "DS_PASS", "GLOO_SOCKET_PW", "GLOO_SOCKET_DB_PW2", "NCCL_PWD"),
        *("NCCL_AUTH", "NCCL_BASIC_AUTH", "NCCL_PASSPHRASE", "NCCL_APIKEY", "nccl_key", "NCCL_CREDS", "NCCL_api_token"),
        *("DEEPSPEED_SECRETS", "DEEPSPEED_SAS", "DEEPSPEED_DSN", "DEEPSPEED_COOKIE", "TORCH_CUDA_PASSWD"),
        *("PWD", "OLDPWD", "HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL"),
    ],
)
def test_what_may_be_a_secret_is_not_kept(name: str) -> None:
    """Variables that may be secrets, or are not listed, are neither recorded nor passed to other hosts."""
    assert recorded_variables({name: "s"}) == {}
    assert passed_variables({name: "s"}) == {}


@pytest.mark.parametrize("value", ["https://me:hunter2@host/x", "redis://:pw@host", "https://ghp_token@github.com/a/b"])
def test_a_url_with_a_password_is_not_kept(value: str) -> None:
    """A URL with a password or token is not recorded, whatever its variable's name."""
    assert recorded_variables({"NCCL_TOPO_FILE": value, "PYTHONPATH": value}) == {}


def test_the_list_of_what_is_kept_is_documented() -> None:
    """The documentation lists exactly the names and prefixes of variables that are recorded."""
    page = VARIABLES_PAGE.read_text()
    section = page[page.index("## What is kept with a trial") :]

    named = set(re.findall(r"`([A-Z][A-Z_0-9]+)(?:…)?`", section))

    assert named == {*_RECORDED_NAMES, *_RECORDED_PREFIXES}
