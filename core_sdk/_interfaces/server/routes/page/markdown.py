"""Notes in Markdown, read here rather than by a library of the page: it draws elements, and never markup."""

from __future__ import annotations

import functools
from typing import Annotated

import msgspec
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from core_sdk._interfaces.server.shared_view import SharedView

_LINKS = ("http:", "https:", "mailto:")


class MarkdownBody(msgspec.Struct, frozen=True):
    text: Annotated[str, msgspec.Meta(max_length=60_000)]


class Element(msgspec.Struct, frozen=True):
    """An element to draw."""

    tag: str
    content: list[Element | str] = []
    """The elements and texts in it."""
    href: str | None = None
    """The address of a link, which is on the web or for mail."""
    start: int | None = None
    """The number at which a list begins."""


class MarkdownAnswer(msgspec.Struct, frozen=True):
    content: list[Element | str]


def markdown(shared: SharedView, body: MarkdownBody) -> MarkdownAnswer:
    """Returns what a text in Markdown shows. HTML and pictures stay text: nothing runs, no other server is asked."""
    return MarkdownAnswer(_drawn(SyntaxTreeNode(_reader().parse(body.text))))


@functools.cache
def _reader() -> MarkdownIt:
    return MarkdownIt("js-default", {"html": False, "linkify": True})


def _drawn(parent: SyntaxTreeNode) -> list[Element | str]:
    found: list[Element | str] = []
    for node in parent.children:
        match node.type:
            case "inline":
                found += _drawn(node)
            case "text" | "text_special":
                found.append(node.content)
            case "softbreak":
                found.append("\n")
            case "code_inline":
                found.append(Element("code", [node.content]))
            case "fence" | "code_block":
                found.append(Element("pre", [Element("code", [node.content])]))
            case "image":
                found.append(f"![{node.content}]({node.attrs['src']})")
            case "link" if not str(node.attrs["href"]).lower().startswith(_LINKS):
                found += _drawn(node)
            case "paragraph" if node.hidden:
                found += _drawn(node)
            case _:
                href, start = (node.attrs.get(name) for name in ("href", "start"))
                drawn = Element(node.tag, _drawn(node), href if isinstance(href, str) else None)
                found.append(msgspec.structs.replace(drawn, start=start) if isinstance(start, int) else drawn)
    return found
