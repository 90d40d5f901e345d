"""Code directories: what belongs to them, how they are packed and stored, and how they come back."""

from __future__ import annotations

import ctypes
import gzip
import hashlib
import io
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from parts import needs, strace

from core_sdk._execution.experiments.code import (
    PackedCode,
    has_startup_hook,
    pack,
    remove_code,
    unpack,
    unpack_for_trial,
    with_startup_hook,
)
from core_sdk._home import Home
from core_sdk.errors import CodeDamagedError, CodeDirectoryError, ExperimentError

UNPACK = """
import sys
from pathlib import Path

from core_sdk._execution.experiments.code import unpack_for_trial
from core_sdk._home import Home

home = Home.open(Path(sys.argv[1]))
unpack_for_trial(home, sys.argv[2], home.folder(int(sys.argv[3])))
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A code directory that holds one script."""
    return write(tmp_path / "model", {"train.py": "print('trained')\n"})


def write(directory: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(content)
    return directory


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def unpacked(home: Home, code: PackedCode, directory: Path) -> dict[str, str]:
    """Returns the content by name; "/" for a directory, and "-> target" for a link."""
    unpack(home, code.sha256, directory)
    found = {}
    for path in sorted(directory.rglob("*")):
        content = f"-> {path.readlink()}" if path.is_symlink() else "/" if path.is_dir() else path.read_text()
        found[str(path.relative_to(directory))] = content
    return found


def test_code_comes_back_as_it_was(home: Home, model: Path, tmp_path: Path) -> None:
    """Packed code is unpacked as it was: files, directories, links inside, and the right to execute."""
    write(model, {"data/load.py": "load", "run.sh": "#!/bin/sh", "é/" + "long" * 50: "deep"})
    (model / "run.sh").chmod(0o700)
    (model / "empty").mkdir()
    (model / "data" / "main.py").symlink_to("../train.py")
    (model / "absolute.py").symlink_to(model / "train.py")
    (model / ".#train.py").symlink_to("somebody@host.4711")

    code = pack(home, model)

    assert unpacked(home, code, tmp_path / "again") == {
        ".#train.py": "-> somebody@host.4711",
        "absolute.py": "-> train.py",
        "data": "/",
        "data/load.py": "load",
        "data/main.py": "-> ../train.py",
        "empty": "/",
        "run.sh": "#!/bin/sh",
        "train.py": "print('trained')\n",
        "é": "/",
        "é/" + "long" * 50: "deep",
    }
    assert os.access(tmp_path / "again" / "run.sh", os.X_OK)
    assert not (tmp_path / "again" / "train.py").stat().st_mode & 0o111
    assert time.time() - (tmp_path / "again" / "train.py").stat().st_mtime < 60


def test_equal_directories_are_stored_once(home: Home, model: Path, tmp_path: Path) -> None:
    """Equal code is stored once, whatever the files' times, their owner's rights and the order of writing."""
    write(model, {"a.py": "a", "b/c.py": "c"})
    write(tmp_path / "other", {"b/c.py": "c", "a.py": "a", "train.py": "print('trained')\n"})
    os.utime(tmp_path / "other" / "a.py", (0, 0))
    (tmp_path / "other" / "a.py").chmod(0o600)
    first = pack(home, model)
    archive = home.code_archive(first.sha256)
    before = archive.stat()

    second = pack(home, tmp_path / "other")

    assert second == first
    assert (archive.stat().st_ino, archive.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert list(archive.parent.iterdir()) == [archive]
    assert archive.stat().st_mode & 0o777 == 0o600
    assert hashlib.sha256(gzip.decompress(archive.read_bytes())).hexdigest() == first.sha256


@pytest.mark.parametrize("change", ["content", "name", "executable"])
def test_any_difference_makes_other_code(home: Home, model: Path, change: str) -> None:
    """Code with other content, another name or another right to execute has another hash."""
    before = pack(home, model)
    script = model / "train.py"
    match change:
        case "content":
            script.write_text("print('Trained')\n")
        case "name":
            script.rename(model / "main.py")
        case "executable":
            script.chmod(0o755)

    assert pack(home, model).sha256 != before.sha256


def test_ignore_files_leave_files_out(home: Home, model: Path, tmp_path: Path) -> None:
    """Both ignore files leave files out, in git's syntax, in addition to what is always left out."""
    files = [
        "__pycache__/train.pyc",
        ".git/config",
        "data/big.bin",
        "data/keep.bin",
        "out/log.txt",
        "x.tmp",
        "sub/x.tmp",
    ]
    write(model, dict.fromkeys(files, "content"))
    (model / ".detignore").write_text("# what is big\ndata/*\n!data/keep.bin\n*.tmp\n")
    (model / ".coreignore").write_text("/out/\n!/x.tmp\n")

    code = pack(home, model)

    found = {name for name in unpacked(home, code, tmp_path / "again") if not name.startswith(".")}
    assert found == {"data", "data/keep.bin", "sub", "train.py", "x.tmp"}


def test_a_bad_pattern_names_its_file(home: Home, model: Path) -> None:
    """The error for a bad pattern names its file and quotes the pattern."""
    (model / ".coreignore").write_text("data/\n!\n")

    with pytest.raises(CodeDirectoryError, match=r"\.coreignore has a pattern that cannot be read: .*'!'"):
        pack(home, model)


def test_includes_come_under_their_own_names(home: Home, model: Path, tmp_path: Path) -> None:
    """Included files and directories are packed under their own names."""
    write(tmp_path / "shared", {"tools.py": "tools", "__pycache__/tools.pyc": "no"})
    (tmp_path / "notes.txt").write_text("notes")

    code = pack(home, model, [tmp_path / "shared", tmp_path / "notes.txt"])

    assert unpacked(home, code, tmp_path / "again") == {
        "notes.txt": "notes",
        "shared": "/",
        "shared/tools.py": "tools",
        "train.py": "print('trained')\n",
    }


def test_an_include_hides_no_file(home: Home, model: Path, tmp_path: Path) -> None:
    """An included file whose name the code directory already has is refused."""
    write(tmp_path / "elsewhere", {"train.py": "another"})

    with pytest.raises(CodeDirectoryError, match=r"cannot be included: .* has 'train.py' already"):
        pack(home, model, [tmp_path / "elsewhere" / "train.py"])


def test_a_link_that_leaves_the_directory_is_followed(home: Home, model: Path, tmp_path: Path) -> None:
    """A link out of the directory is followed to its target, except where it leads back or is ignored."""
    write(tmp_path / "shared", {"tools.py": "tools", "cache/large.bin": "large", "more/data.csv": "1,2"})
    (model / "sub").mkdir()
    (model / "sub" / "tools.py").symlink_to("../../shared/tools.py")
    (model / "shared").symlink_to(tmp_path / "shared")
    (model / "cache").symlink_to(tmp_path / "shared" / "cache")
    (tmp_path / "shared" / "more" / "train.py").symlink_to(model / "train.py")
    (tmp_path / "shared" / "more" / "tools.py").symlink_to("../tools.py")
    (model / ".coreignore").write_text("cache/\n")

    code = pack(home, model)

    assert unpacked(home, code, tmp_path / "again") == {
        ".coreignore": "cache/\n",
        "shared": "/",
        "shared/more": "/",
        "shared/more/data.csv": "1,2",
        "shared/more/tools.py": "tools",
        "shared/more/train.py": "-> ../../train.py",
        "shared/tools.py": "tools",
        "sub": "/",
        "sub/tools.py": "tools",
        "train.py": "print('trained')\n",
    }
    with pytest.raises(CodeDirectoryError, match="holds more than 0 MiB"):
        pack(home, model, max_size_bytes=20)


def test_a_link_out_of_the_directory_leads_somewhere_and_not_in_a_circle(
    home: Home, model: Path, tmp_path: Path
) -> None:
    """A link out of the directory that leads nowhere or in a circle is refused by name, unless it is ignored."""
    for name, other in (("one", "two"), ("two", "one")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "other").symlink_to(tmp_path / other)
    (model / "link").symlink_to(tmp_path / "one")

    with pytest.raises(CodeDirectoryError, match=r"link, 'link/other/other', to /.*/one, which holds the link"):
        pack(home, model)
    (model / "link").unlink()
    (model / "link").symlink_to("..")
    with pytest.raises(CodeDirectoryError, match=r"link, 'link', to /.*, which holds the link"):
        pack(home, model)
    (model / "link").unlink()
    (model / "link").symlink_to("../nothing")
    with pytest.raises(CodeDirectoryError, match=r"link, 'link', to /.*/nothing, where nothing is. Name it in"):
        pack(home, model)
    (model / ".coreignore").write_text("link\n")
    assert pack(home, model).num_files == 2


def test_a_socket_is_refused_unless_it_is_ignored(home: Home, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket in the code directory is refused, unless it is ignored."""
    monkeypatch.chdir(model)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("debug.sock")
        with pytest.raises(CodeDirectoryError, match=r"'debug\.sock', which is a socket"):
            pack(home, model)

    (model / ".coreignore").write_text("*.sock")

    assert pack(home, model).num_files == 2


def test_a_file_that_cannot_be_read_is_named(home: Home, model: Path) -> None:
    """The error names a file that cannot be read, and nothing is stored."""
    (model / "train.py").chmod(0)
    source = (
        "import sys; from pathlib import Path; from core_sdk._execution.experiments.code import pack; "
        "from core_sdk._home import Home; pack(Home(Path(sys.argv[1])), Path(sys.argv[2]))"
    )

    ended = subprocess.run(
        [sys.executable, "-c", source, home.root, model],
        preexec_fn=without_rights_of_root,
        capture_output=True,
        text=True,
    )

    assert f"the code directory {model}/train.py cannot be read: Permission denied" in ended.stderr
    assert not (home.root / "code").exists()


def without_rights_of_root() -> None:
    """Takes from the program that follows what lets root read any file."""
    drop_from_bounding_set, override, read_search = 24, 1, 2
    for capability in (override, read_search):
        ctypes.CDLL(None).prctl(drop_from_bounding_set, capability, 0, 0, 0)


def test_a_missing_directory_is_named(home: Home, tmp_path: Path) -> None:
    """The error for a missing code directory names it and has the operating system's reason."""
    with pytest.raises(CodeDirectoryError, match=r"nowhere cannot be read: .*No such file or directory"):
        pack(home, tmp_path / "nowhere")


def test_too_much_code_is_refused_with_its_largest_files(home: Home, model: Path) -> None:
    """Code above the limit is refused with its largest files before anything is stored; the limit can be raised."""
    write(model, {"data/large.bin": "x" * 3_000_000, "data/small.bin": "x" * 10})

    with pytest.raises(CodeDirectoryError, match=r"more than 2 MiB, among it 'data/large.bin' \(2.9 MiB\)"):
        pack(home, model, max_size_bytes=2 << 20)

    assert not (home.root / "code").exists()
    assert pack(home, model, max_size_bytes=4 << 20).size_bytes > 3_000_000


def test_much_code_is_warned_of(home: Home, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A large code directory is packed with a warning that names the largest files."""
    with (model / "weights.bin").open("wb") as file:
        file.truncate(51 << 20)

    with caplog.at_level(logging.WARNING):
        pack(home, model)

    assert "holds 51 MiB. Its largest files: 'weights.bin' (51 MiB)" in caplog.text


def test_a_home_inside_the_directory_is_left_out(model: Path, tmp_path: Path) -> None:
    """A home inside the code directory is left out of the code."""
    home = Home.create(model / "home")

    first = pack(home, model)

    assert pack(home, model) == first
    assert list(unpacked(home, first, tmp_path / "again")) == ["train.py"]


def test_a_file_that_changes_meanwhile_is_noticed(home: Home, model: Path) -> None:
    """A file that changes while it is packed is noticed, and no archive is stored."""
    source = """
    import sys
    while True:
        with open(sys.argv[1], "w") as file:
            for _ in range(1000):
                file.write("x" * 1000)
                file.flush()
    """
    write(model, {f"filler/{index}": "x" * 1000 for index in range(300)})
    program = "\n".join(line[4:] for line in source.splitlines())
    writer = subprocess.Popen([sys.executable, "-c", program, str(model / "zz.log")])
    try:
        while not (model / "zz.log").exists():
            assert writer.poll() is None

        # The writer may have to wait for a CPU meanwhile: then nothing has changed, and it is packed again.
        with pytest.raises(ExperimentError, match="changed while it was being packed"):
            for _ in range(100):
                before = set(home.root.glob("code/*"))
                pack(home, model)
    finally:
        writer.kill()
        writer.wait()

    assert set(home.root.glob("code/*")) == before


def test_what_a_kill_left_is_removed_by_a_later_submission(home: Home, model: Path) -> None:
    """A later submission removes old temporary files of killed ones, but no young ones, which may be in use."""
    (home.root / "code").mkdir()
    old, young = home.root / "code" / ".old.tmp", home.root / "code" / ".young.tmp"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))

    pack(home, model)

    assert (old.exists(), young.exists()) == (False, True)


def test_a_trial_gets_its_own_copy_once(home: Home, model: Path) -> None:
    """A trial's code is unpacked once; a second call keeps what the script has written since."""
    folder = home.create_trial()
    code = pack(home, model)
    directory = unpack_for_trial(home, code.sha256, folder)
    (directory / "output.txt").write_text("output")

    assert unpack_for_trial(home, code.sha256, folder) == directory == folder.path / "code"
    assert names(directory) == ["output.txt", "train.py"]
    remove_code(folder)
    remove_code(folder)
    assert names(folder.path) == []


@needs("strace")
def test_a_copy_is_on_disk_before_it_has_its_name(home: Home, model: Path, tmp_path: Path) -> None:
    """Before a copy of the code gets its name, all of its files and directories are fsynced."""
    write(model, {"net/layers.py": "", "net/deep/more.py": ""})
    (model / "link").symlink_to("nothing")
    code, folder = pack(home, model), home.create_trial()
    command = [sys.executable, "-c", UNPACK, str(home.root), code.sha256, str(folder.trial_id)]

    trace = tmp_path / "trace"
    subprocess.run([*strace("-y", "-e", "trace=fsync,rename", trace=trace), *command], check=True)

    before = trace.read_text().partition(" rename(")[0]
    copies = {str(Path(path).relative_to(folder.path)) for path in re.findall(r"fsync\(\d+<([^>]*)>", before)}
    assert {"/".join(Path(copy).parts[1:]) for copy in copies} == {
        "", "train.py", "net", "net/layers.py", "net/deep", "net/deep/more.py"
    }  # fmt: skip
    assert (folder.code_path / "link").is_symlink()


def test_a_kill_while_unpacking_leaves_no_half_copy(home: Home, model: Path) -> None:
    """Killed at once, later and later: the copy is whole or absent, and the next call makes it whole."""
    write(model, {f"package/module{index}.py": "x = 1\n" for index in range(300)})
    code = pack(home, model)
    source = (
        "import sys; from pathlib import Path; from core_sdk._execution.experiments.code import unpack_for_trial; from "
        "core_sdk._home import Home; home = Home(Path(sys.argv[1])); print('ready', flush=True); "
        "[unpack_for_trial(home, sys.argv[2], home.create_trial()) for _ in range(100)]"
    )
    for delay_s in (0.0, 0.02, 0.04, 0.07):
        process = subprocess.Popen(
            [sys.executable, "-c", source, str(home.root), code.sha256], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()

    for trial_id in home.trial_ids(include_deleted=True):
        folder = home.folder(trial_id)
        assert not folder.code_path.exists() or len(list(folder.code_path.rglob("*.py"))) == 301
        assert len(list(unpack_for_trial(home, code.sha256, folder).rglob("*.py"))) == 301
        assert names(folder.path) == ["code"]


@pytest.mark.parametrize("damage", ["flipped", "short", "missing", "other", "text"])
def test_a_damaged_archive_is_never_unpacked(home: Home, model: Path, tmp_path: Path, damage: str) -> None:
    """An archive whose content does not have the hash in its name is refused and not unpacked."""
    code = pack(home, model)
    path = home.code_archive(code.sha256)
    content = path.read_bytes()
    match damage:
        case "flipped":
            path.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
        case "short":
            path.write_bytes(content[: len(content) // 2])
        case "missing":
            path.unlink()
        case "other":
            path.write_bytes(gzip.compress(archive_of("../escaped")))
        case "text":
            path.write_text("nothing")

    with pytest.raises(CodeDamagedError, match="Restore it from a copy, or delete it and submit the same directory"):
        unpack(home, code.sha256, tmp_path / "again")

    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "link/escaped"])
def test_no_archive_writes_outside_its_directory(home: Home, tmp_path: Path, name: str) -> None:
    """No archive is unpacked outside of its directory, even one whose hash is right."""
    content = archive_of(name)
    sha256 = hashlib.sha256(content).hexdigest()
    home.code_archive(sha256).parent.mkdir()
    home.code_archive(sha256).write_bytes(gzip.compress(content))

    with pytest.raises(CodeDamagedError, match="cannot be unpacked"):
        unpack(home, sha256, tmp_path / "code")

    assert not (tmp_path / "escaped").exists()
    assert not Path("/tmp/escaped").exists()


def archive_of(name: str) -> bytes:
    """Returns a tar archive of a link to the directory above, and a file."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, ".."
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo(name))
    return file.getvalue()


def test_the_startup_hook_is_sourced_first(home: Home, model: Path, tmp_path: Path) -> None:
    """An executable startup hook is sourced before the command, which sees its variables and gives the status."""
    write(model, {"startup-hook.sh": "export GREETING=hello\nfalse || true\n"})
    unpack(home, pack(home, model).sha256, tmp_path / "plain")
    (model / "startup-hook.sh").chmod(0o755)
    unpack(home, pack(home, model).sha256, tmp_path / "hooked")

    command = with_startup_hook(["sh", "-c", 'echo "$GREETING $1"; exit 7', "sh", "a b"])

    ended = subprocess.run(command, cwd=tmp_path / "hooked", capture_output=True, text=True)
    assert (ended.stdout, ended.returncode) == ("hello a b\n", 7)
    assert has_startup_hook(tmp_path / "hooked")
    assert not has_startup_hook(tmp_path / "plain")


def test_a_failing_startup_hook_ends_the_command(tmp_path: Path) -> None:
    """If the startup hook fails, the command is not started, and the hook's status is returned."""
    (tmp_path / "startup-hook.sh").write_text("exit 3")

    ended = subprocess.run(with_startup_hook(["echo", "started"]), cwd=tmp_path, capture_output=True, text=True)

    assert (ended.stdout, ended.returncode) == ("", 3)


def test_the_order_of_the_file_system_does_not_matter(home: Home, model: Path, tmp_path: Path) -> None:
    """The hash of code does not depend on the order in which the file system lists it."""
    write(model, {f"{name}.py": name for name in "zyxwv"})
    (tmp_path / "copy").mkdir()
    for path in sorted(model.iterdir(), reverse=True):
        shutil.copy(path, tmp_path / "copy")

    assert pack(home, tmp_path / "copy") == pack(home, model)
