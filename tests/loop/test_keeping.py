"""What is kept of a checkpoint is said in one word, or by names."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from core_sdk._ground.records import Keep
from core_sdk.loop._keeping import kept_parts

PARTS = ("models", "optimizers", "training")


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        ("all", PARTS),
        ("model", ["models"]),
        ({"training"}, ["training"]),
        (["models", "training"], ["models", "training"]),
        ((), []),
    ],
)
def test_a_word_or_names_say_what_is_kept(keep: Keep, kept: Collection[str]) -> None:
    assert kept_parts(keep, PARTS, models=["models"]) == set(kept)


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ("models", r"keep is 'models'; it must be \"all\", \"model\", or a set of names, such as {'models'}"),
        ("", "keep is ''; it must be"),
        ({"model", "training"}, "keep has 'model'; it may have models, optimizers, training"),
        ([1], "keep has 1; it may have"),
    ],
)
def test_an_unknown_word_or_name_is_refused(keep: Keep, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kept_parts(keep, PARTS, models=["models"])


@pytest.mark.parametrize("keep", [True, 1, None])
def test_what_is_no_word_and_has_no_names_is_refused(keep: Keep) -> None:
    with pytest.raises(TypeError, match='it must be "all", "model", or a set of names'):
        kept_parts(keep, PARTS, models=["models"])
