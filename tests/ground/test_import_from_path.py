"""Code that was kept with a checkpoint is imported next to the code that is running."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from core_sdk import import_from_path
from core_sdk._ground.importing import file_of


@pytest.fixture(autouse=True)
def same_modules_afterwards() -> Iterator[None]:
    """Restores the modules and the search path after each test."""
    modules, path = dict(sys.modules), list(sys.path)
    yield
    for name in [name for name in sys.modules if name not in modules]:
        del sys.modules[name]
    sys.modules.update(modules)
    sys.path[:] = path


def write_code(directory: Path, **modules: str) -> Path:
    """Files by their module's name; a double underscore separates a package from its module."""
    for name, source in modules.items():
        file = directory.joinpath(*name.split("__")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.parent != directory:
            (file.parent / "__init__.py").touch()
        file.write_text(source)
    return directory


def version_of(module: str) -> object:
    return importlib.import_module(module).VERSION


def test_each_path_gives_its_own_version_of_a_module(tmp_path: Path) -> None:
    """Modules of one name from two paths are different."""
    first = write_code(tmp_path / "first", model_def="VERSION = 1")
    second = write_code(tmp_path / "second", model_def="VERSION = 2")

    versions = []
    for path in (first, second):
        with import_from_path(path):
            versions.append(version_of("model_def"))

    assert versions == [1, 2]
    assert "model_def" not in sys.modules


def test_each_path_gives_its_own_version_of_a_packages_modules(tmp_path: Path) -> None:
    """Modules of a package are forgotten with the package."""
    first = write_code(tmp_path / "first", models__net="VERSION = 1")
    second = write_code(tmp_path / "second", models__net="VERSION = 2")

    versions = []
    for path in (first, second):
        with import_from_path(path):
            versions.append(version_of("models.net"))

    assert versions == [1, 2]
    assert not {"models", "models.net"} & set(sys.modules)


def test_sub_packages_without_a_file_are_forgotten_too(tmp_path: Path) -> None:
    """Packages without an __init__.py are forgotten too."""
    code = write_code(tmp_path / "code", models__net="")
    (code / "models" / "blocks").mkdir()
    (code / "models" / "blocks" / "residual.py").touch()

    with import_from_path(code):
        importlib.import_module("models.blocks.residual")

    assert [name for name in sys.modules if name.startswith("models")] == []


def test_a_file_that_was_put_there_a_moment_ago_is_found(tmp_path: Path) -> None:
    """Python remembers a directory's content by its time, which is coarser than a download is fast."""
    code = write_code(tmp_path / "code", other="")
    with import_from_path(code), pytest.raises(ModuleNotFoundError):
        importlib.import_module("model_def")
    times = code.stat()
    write_code(code, model_def="VERSION = 1")
    os.utime(code, ns=(times.st_atime_ns, times.st_mtime_ns))

    with import_from_path(code):
        version = version_of("model_def")

    assert version == 1


def test_a_path_reached_through_a_link_is_forgotten_too(tmp_path: Path) -> None:
    """Modules of a path that is reached through a link are forgotten too."""
    write_code(tmp_path / "real", models__net="VERSION = 1")
    (tmp_path / "link").symlink_to(tmp_path / "real")

    with import_from_path(tmp_path / "link"):
        version = version_of("models.net")

    assert version == 1
    assert not {"models", "models.net"} & set(sys.modules)


def test_code_that_extends_the_search_path_below_the_path_is_forgotten(tmp_path: Path) -> None:
    """Modules from search paths that the code adds below the path are forgotten too."""
    code = write_code(
        tmp_path / "code",
        model_def=f"import sys; sys.path.insert(0, {str(tmp_path / 'code/src')!r}); import inner_part",
    )
    write_code(code / "src", inner_part="")
    search_path = list(sys.path)

    with import_from_path(code):
        importlib.import_module("model_def")

    assert not {"model_def", "inner_part"} & set(sys.modules)
    assert sys.path == search_path


def test_modules_of_the_current_directory_step_aside_and_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules of the current directory are hidden inside and restored afterwards."""
    monkeypatch.chdir(write_code(tmp_path / "here", model_def="VERSION = 'here'", only_here=""))
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    mine, only_here = importlib.import_module("model_def"), importlib.import_module("only_here")
    code = write_code(tmp_path / "code", model_def="VERSION = 'kept'")

    with import_from_path(code):
        kept = version_of("model_def")
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("only_here")

    assert kept == "kept"
    assert sys.modules["model_def"] is mine
    assert sys.modules["only_here"] is only_here
    assert sys.path[0] == ""


def test_a_package_imported_from_elsewhere_steps_aside_for_its_namesake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package of the same name is hidden inside and restored afterwards."""
    monkeypatch.syspath_prepend(
        str(write_code(tmp_path / "script", models__net="VERSION = 'script'", models__extra=""))
    )
    mine, extra = importlib.import_module("models.net"), importlib.import_module("models.extra")
    code = write_code(tmp_path / "code", models__net="VERSION = 'kept'")

    with import_from_path(code):
        kept = version_of("models.net")
        is_extra_hidden = "models.extra" not in sys.modules

    assert kept == "kept"
    assert is_extra_hidden
    assert sys.modules["models.net"] is mine
    assert sys.modules["models.extra"] is extra


def test_the_standard_library_and_the_sdk_stay_themselves(tmp_path: Path) -> None:
    """Modules of the standard library and of the SDK are never replaced."""
    import json

    code = write_code(tmp_path / "code", json="VERSION = 'kept'", core_sdk="VERSION = 'kept'")

    with import_from_path(code):
        inside = [sys.modules["json"], importlib.import_module("core_sdk")]

    assert inside[0] is json
    assert inside[1] is sys.modules["core_sdk"]
    assert not hasattr(inside[1], "VERSION")


def test_libraries_below_the_path_that_were_importable_before_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project's folder may hold its virtual environment; a library cannot always be imported twice."""
    code = write_code(tmp_path / "project", model_def="import some_library.part")
    monkeypatch.syspath_prepend(str(write_code(code / ".venv" / "site-packages", some_library__part="")))

    with import_from_path(code):
        importlib.import_module("model_def")

    assert "model_def" not in sys.modules
    assert {"some_library", "some_library.part"} <= set(sys.modules)


def test_no_bytecode_is_written_below_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint's files are not added to; afterwards byte-code is written as before."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    code = write_code(tmp_path / "code", model_def="import models.net", models__net="")

    with import_from_path(code):
        importlib.import_module("model_def")

    assert list(code.rglob("__pycache__")) == []
    assert not sys.dont_write_bytecode


def test_objects_outlive_the_context(tmp_path: Path) -> None:
    """Imported objects can be used after the block."""
    code = write_code(tmp_path / "code", model_def="SCALE = 3\ndef scaled(x): return SCALE * x")

    with import_from_path(code):
        scaled = importlib.import_module("model_def").scaled

    assert scaled(2) == 6


def test_everything_is_restored_after_an_error(tmp_path: Path) -> None:
    """A kept module that cannot be imported leaves nothing behind, and the next one can be."""
    broken = write_code(tmp_path / "broken", model_def="import part\nraise OSError('no data')", part="")
    sound = write_code(tmp_path / "sound", model_def="VERSION = 1")
    search_path, finders = list(sys.path), list(sys.meta_path)

    with pytest.raises(OSError, match="no data"), import_from_path(broken):
        importlib.import_module("model_def")

    assert (sys.path, sys.meta_path) == (search_path, finders)
    assert not {"model_def", "part"} & set(sys.modules)
    with import_from_path(sound):
        assert version_of("model_def") == 1


def test_nesting_is_refused(tmp_path: Path) -> None:
    """Nested use is refused."""
    with import_from_path(tmp_path), pytest.raises(RuntimeError, match="open already"), import_from_path(tmp_path):
        pass


def test_a_second_thread_is_refused(tmp_path: Path) -> None:
    """Use from a second thread is refused, since the search path belongs to the process."""
    refusals: list[RuntimeError] = []

    def enter() -> None:
        try:
            with import_from_path(tmp_path):
                pass
        except RuntimeError as error:
            refusals.append(error)

    with import_from_path(tmp_path):
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()

    assert len(refusals) == 1


def test_a_path_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    """A path that is no directory is refused."""
    with pytest.raises(NotADirectoryError, match="missing"), import_from_path(tmp_path / "missing"):
        pass


class _Pretender:
    """Says that it is a module, and has no `__dict__`, as a library of cffi among the imported modules."""

    __slots__ = ()
    __class__ = ModuleType  # type: ignore[assignment]


def test_what_only_says_that_it_is_a_module_has_no_file() -> None:
    """The file of a module is told, and nothing else among the imported modules is taken for one."""
    pretender: Any = _Pretender()

    assert isinstance(pretender, ModuleType)
    assert file_of(pretender) is None
    assert file_of(importlib) == importlib.__file__
