"""Builds the documentation as a site: `python docs/site_pages.py`, which writes build/site.

With `--publish DIRECTORY` it also stands there, as the present version next to the ones that are published already.

The pages are the documents of this directory, with the README as the first one. The references of the packages and of
all commands are made here: from docstrings, and from the command line's own help. Zensical makes HTML of them, with
search, and refuses links that lead nowhere.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import core_api_page
import page_splitting

from core_sdk._ground.version import __version__
from core_sdk._interfaces.cli._app import app

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SOURCES = "https://github.com/core-sdk/core-sdk/blob/main"

PACKAGES = {
    "core_sdk.pytorch": "Trial and Trainer; [the guide](pytorch.md) shows how they are used.",
    "core_sdk.pytorch.samplers": "Samplers of one rank, of which a Trial's own order can be made.",
    "core_sdk.train": "A function on several workers; [the guide](train.md) shows how it is used.",
    "core_sdk.train.torch": "What that function calls to train with PyTorch.",
    "core_sdk.sgd": "A trainer that a program leads; [the guide](sgd.md) shows how it is used.",
    "core_sdk.client": "Trials, experiments, checkpoints and models from a program or a notebook; "
    "[the guide](client.md) shows how they are found.",
    "core_sdk.media": "Images, audio and other media as [values of a report](media.md).",
    "core_sdk.compat.wandb": "wandb's names; [the guide](moving-from-wandb.md) says what becomes of each.",
    "core_sdk.search": "Search methods of your own; [the guide](custom-search.md) shows how one is written.",
    "core_sdk.searcher": "The names of Determined for search methods of your own.",
}
"""The packages whose references are pages of the site only, with what each is."""
LOOKED_UP = {"api", "board", "changelog", "configuration", "contract", "core-api", "format", "loop", "variables"}
"""The documents in which one looks things up: they stay one page, however long they are."""


def build(directory: Path) -> None:
    """Writes the pages into `directory/pages`, and the site into `directory/site`. Raises `CalledProcessError`."""
    pages = directory / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (pages / "README.md").rename(pages / "contents.md")
    shutil.copy(ROOT / "README.md", pages / "index.md")
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        shutil.copy(ROOT / name, pages / name.lower())
    for page in pages.glob("*.md"):
        page.write_text(with_site_links(page.read_text()))
    divided = divide_long_pages(pages)
    for name, introduction in PACKAGES.items():
        (pages / reference_name(name)).write_text(reference(name, introduction))
    (pages / "reference-commands.md").write_text("\n".join(commands()))
    configuration = directory / "zensical.toml"
    configuration.write_text(with_divided_pages((ROOT / "zensical.toml").read_text(), divided))
    subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "--config-file", configuration], check=True)


def divide_long_pages(directory: Path) -> dict[str, list[page_splitting.SitePage]]:
    """Divides the long documents, and lets all links lead to their parts. Returns the parts by document."""
    texts = {path.name: path.read_text() for path in directory.glob("*.md")}
    pages = {name: page_splitting.divide(name, text) for name, text in texts.items() if _is_read_through(name)}
    divided = {name: parts for name, parts in pages.items() if len(parts) > 1}
    moved: dict[str, str] = {}
    for name, parts in divided.items():
        moved |= page_splitting.anchors(name, texts[name], parts)
    for name, text in texts.items():
        for page in divided.get(name, [page_splitting.SitePage(name, text)]):
            (directory / page.name).write_text(page_splitting.with_moved_links(page.text, name, moved))
    return divided


def _is_read_through(name: str) -> bool:
    return name != "index.md" and name.removesuffix(".md") not in LOOKED_UP


def with_divided_pages(configuration: str, divided: dict[str, list[page_splitting.SitePage]]) -> str:
    """Returns the site's configuration, in which a document that was divided is a list of its parts."""
    for name, parts in divided.items():
        listed = ", ".join(
            f"{{ {json.dumps(page.title.replace('`', ''))} = {json.dumps(page.name)} }}" for page in parts[1:]
        )
        configuration = configuration.replace(f'= "{name}" }}', f'= ["{name}", {listed}] }}')
    return configuration


def with_site_links(text: str) -> str:
    """Returns a page whose links lead to pages of the site, or to files of the repository."""
    text = re.sub(r"(?<=\]\()docs/README\.md", "contents.md", text)
    text = re.sub(r"(?<=\]\()(?:docs/|\.\./docs/)", "", text)
    text = re.sub(
        r"(?<=\]\()(?:\.\./)?(CHANGELOG|CONTRIBUTING|SECURITY)\.md", lambda found: f"{found[1].lower()}.md", text
    )
    text = re.sub(r"(?<=\]\()\.\./README\.md", "index.md", text)
    return re.sub(
        r"(?<=\]\()(?:\.\./)?(LICENSE|RELEASING\.md|examples|tests|core_sdk|launchers|benchmarks)",
        rf"{SOURCES}/\1",
        text,
    )


def reference_name(package: str) -> str:
    return f"reference-{package.removeprefix('core_sdk.').replace('.', '-')}.md"


def reference(package: str, introduction: str) -> str:
    module = importlib.import_module(package)
    page = core_api_page.Page(reference_name(package), f"# {package}\n\n{introduction}\n", exported(module))
    return page.text()


def exported(module: ModuleType) -> dict[str, Any]:
    found = {name: getattr(module, name) for name in module.__all__}
    return {name: value for name, value in found.items() if callable(value)}


def commands() -> Iterator[str]:
    """Yields a page with each command of `core-sdk`, its arguments and its options."""
    root = app
    yield "# Commands\n\nEvery command with its options. [The command line](cli.md) shows how they are used.\n"
    yield from _of_group(root, click.Context(root, info_name="core-sdk"))


def _of_group(group: Any, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = click.Context(command, info_name=name, parent=context)
        if command.hidden:
            continue
        yield f"{'#' * (context.command_path.count(' ') + 2)} {inner.command_path}\n"
        yield f"{_with_examples(command.help)}\n"
        if hasattr(command, "list_commands"):
            yield from _of_group(command, inner)
            continue
        yield f"```\n{inner.command_path} {' '.join(command.collect_usage_pieces(inner))}\n```\n"
        told = [record for param in command.get_params(inner) if (record := param.get_help_record(inner))]
        if told:
            yield "| | |\n|---|---|"
            yield from (f"| `{_cell(words)}` | {_cell(text)} |" for words, text in told)
            yield ""


def _with_examples(text: str) -> str:
    """Returns a command's help, in which paragraphs of command lines are blocks of code."""
    paragraphs = text.split("\n\n")
    is_example = [all(line.startswith("core-sdk ") for line in each.splitlines()) for each in paragraphs]
    return "\n\n".join(f"```\n{one}\n```" if code else one for one, code in zip(paragraphs, is_example, strict=True))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def publish(site: Path, published: Path, version: str) -> None:
    """Puts the site into `published`, where a directory is a version, and leads visitors to the newest release.

    A later candidate or patch of a minor version takes the place of the earlier one.
    """
    minor = ".".join(version.split(".")[:2])
    shutil.rmtree(published / minor, ignore_errors=True)
    shutil.copytree(site, published / minor)
    minors = [each.name for each in published.iterdir() if re.fullmatch(r"\d+\.\d+", each.name)]
    minors.sort(key=lambda name: tuple(map(int, name.split("."))), reverse=True)
    told = [{"version": name, "title": name, "aliases": ["latest"] * (name == minors[0])} for name in minors]
    (published / "versions.json").write_text(json.dumps(told))
    (published / "index.html").write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={minors[0]}/">\n')


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--publish", type=Path, metavar="DIRECTORY")
    published = parser.parse_args(arguments).publish
    build(ROOT / "build")
    if published is not None:
        publish(ROOT / "build" / "site", published, __version__)


if __name__ == "__main__":
    main(sys.argv[1:])
