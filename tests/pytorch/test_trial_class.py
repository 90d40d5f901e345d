"""A Trial class is found by its name, or the error says what is there instead."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core_sdk.pytorch._trial_class import TrialClassError, load_trial_class

MODEL_DEF = """\
from core_sdk.pytorch import PyTorchTrial

class MyTrial(PyTorchTrial):
    pass

class Outer:
    class Inner(PyTorchTrial):
        pass

class Other:
    pass

number = 3
"""


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Makes a working directory that is first on the path, as with `python -m`."""
    (tmp_path / "model_def.py").write_text(MODEL_DEF)
    (tmp_path / "lame.py").write_text("import a_library_that_nobody_has\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "trials.py").write_text(MODEL_DEF)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("model_def", "package", "package.trials"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("spec", ["model_def:MyTrial", "model_def:Outer.Inner", "package.trials:MyTrial"])
def test_a_class_is_found_in_the_working_directory(spec: str) -> None:
    """A class is found in a module or package of the working directory, also inside another class."""
    found = load_trial_class(spec)

    assert f"{found.__module__}:{found.__qualname__}" == spec


def test_a_class_is_found_in_an_installed_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class in an installed module is found."""
    site_packages = tmp_path / "site-packages"
    site_packages.mkdir()
    (site_packages / "installed_trials.py").write_text(MODEL_DEF)
    monkeypatch.setattr(sys, "path", [*sys.path, str(site_packages)])

    assert load_trial_class("installed_trials:MyTrial").__module__ == "installed_trials"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("model_def", "a Trial class is written module:Class"),
        ("model_def:", "a Trial class is written module:Class"),
        ("missing:MyTrial", "there is no module missing in /.*, and none of this name is installed"),
        ("package.missing:MyTrial", "there is no module package.missing in /"),
        ("model_def:MNistTrial", "model_def has no MNistTrial; it has MyTrial"),
        ("model_def:Outer.Missing", "model_def has no Outer.Missing; it has Inner"),
        ("package:MyTrial", "package has no MyTrial"),
        ("model_def:Other", "Other is not a subclass of core_sdk.pytorch.PyTorchTrial"),
        ("model_def:number", "number is not a subclass"),
    ],
)
def test_what_is_no_trial_class_is_said(spec: str, problem: str) -> None:
    """A specification without a Trial class is refused with what was found instead."""
    with pytest.raises(TrialClassError, match=problem):
        load_trial_class(spec)


def test_a_library_that_the_module_lacks_is_named_by_its_own_error() -> None:
    """If the module lacks a library, its own ImportError is raised."""
    with pytest.raises(ModuleNotFoundError, match="a_library_that_nobody_has"):
        load_trial_class("lame:MyTrial")
