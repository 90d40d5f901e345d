"""What counts as a secret, in names, URLs and commands."""

from __future__ import annotations

import pytest

from core_sdk._ground.masking import (
    MASK,
    is_secret_name,
    masked_arguments,
    masked_command,
    masked_text,
    masked_values,
)


@pytest.mark.parametrize(
    "name",
    [
        *("password", "db_password", "DB_PASSWD", "user.password", "smtp_pass", "passphrase", "pwd", "GLOO_SOCKET_PW2"),
        *("token", "hf_token", "HF-TOKEN", "github.token", "accessToken", "bearer", "jwt", "auth", "basic_auth"),
        *("apiKey", "api_key", "APIKEY", "wandb.api_key", "aws_secret_access_key", "access_key_id", "privateKey"),
        *("secret", "client_secret", "credentials", "connection_string", "sas", "dsn", "X-Amz-Security-Token"),
    ],
)
def test_such_names_are_secret(name: str) -> None:
    """However the words of a name are joined, it says that its value is a secret."""
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("lr", "tokenizer", "num_tokens", "max_tokens", "token_dim", "eos_token", "pad_token", "token_type"),
        *("key_dim", "num_key_value_heads", "image_key", "sort_key", "keypoints", "monkey", "author", "authority"),
        *("passes", "pass_rate", "bypass", "compass", "certainty", "attention_key_bias"),
    ],
)
def test_hyperparameters_of_models_are_none(name: str) -> None:
    """The names of usual hyperparameters are not secret."""
    assert not is_secret_name(name)


def test_values_are_masked_by_their_names_and_their_urls() -> None:
    """Groups and lists are searched; counts, flags and a model's own tokens stay."""
    values = {
        "lr": 0.1,
        "hub": {"token": "hidden", "url": "https://me:hidden@host/x?b=1&sig=hidden"},
        "passwords": ["hidden", 1234],
        "token": 7,
        "class_token": "<s>",
        "use_auth": True,
        "api_key": {"type": "categorical", "vals": ["hidden", "hidden"]},
        "empty": {"password": "", "secret": None},
    }

    shown = masked_values(values)

    assert "hidden" not in str(shown)
    assert shown["hub"] == {"token": MASK, "url": f"https://{MASK}@host/x?b=1&sig={MASK}"}
    assert shown["passwords"] == [MASK, MASK]
    assert shown["api_key"] == {"type": "categorical", "vals": [MASK, MASK]}
    kept = ("lr", "token", "class_token", "use_auth", "empty")
    assert {name: shown[name] for name in kept} == {name: values[name] for name in kept}


@pytest.mark.parametrize("url", ["https://me:hidden@host/x", "redis://:hidden@host", "https://ghp_hidden@github.com/a"])
def test_a_user_of_a_url_is_masked(url: str) -> None:
    """A user, a password or a token before the host of a URL is masked, and the rest stays."""
    scheme, _, rest = url.partition("://")

    assert masked_text(f"see {url} now") == f"see {scheme}://{MASK}@{rest.partition('@')[2]} now"


def test_arguments_are_masked() -> None:
    """Options with their values in the same word or the next, variables, and what a shell gets as one word."""
    arguments = ["env", "HF_TOKEN=hidden", "python", "t.py", "--api-key", "hidden", "--password=hidden", "--lr", "0.1"]
    arguments += ["+hub.token=hidden", "--quiet", "--token", "--seed", "7", "--db", "postgres://me:hidden@host/db"]
    shell = ["sh", "-c", "API_KEY=hidden python t.py --token hidden --secret 'hidden too' --epochs 3"]

    shown = masked_arguments([*arguments, *shell])

    assert "hidden" not in str(shown)
    assert shown[:6] == ["env", f"HF_TOKEN={MASK}", "python", "t.py", "--api-key", MASK]
    assert [shown[8], *shown[10:14], shown[14]] == ["0.1", "--quiet", "--token", "--seed", "7", "--db"]
    assert shown[-1] == f"API_KEY={MASK} python t.py --token {MASK} --secret {MASK} --epochs 3"
    assert masked_command("python t.py --lr 0.1 key=1") == "python t.py --lr 0.1 key=1"
