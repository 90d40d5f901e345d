"""Divides long documents into pages that are read in about three minutes. Pure.

A document stays one file in the repository, where an editor searches it. On the site each of its sections is a page,
with links to the others; a short section stays with the one before it, and a long one is divided in turn.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

MOST_WORDS = 750
"""The words of a page that is not divided: three minutes, at 250 a minute. Code is not counted."""
_FEWEST_WORDS = 120
_HEADING = re.compile(r"(#{1,6}) (.+)")


@dataclass(frozen=True)
class SitePage:
    """A page of the site, which begins with its title."""

    name: str
    """The name of its file, such as `stop-how-soon.md`."""
    text: str

    @property
    def title(self) -> str:
        return self.text.partition("\n")[0].removeprefix("# ")


def divide(name: str, text: str, document: str = "") -> list[SitePage]:
    """Returns the pages of a document, in its order; the document itself if it is short or has no sections.

    The others are called after the document of which it is a part, by default itself, and after their titles.
    """
    first, *sections = _sections(text)
    if not sections or num_words(text) <= MOST_WORDS:
        return [SitePage(name, text)]
    parts = [first]
    for section in sections:
        if num_words(section) < _FEWEST_WORDS:
            parts[-1] += section
        else:
            parts.append(section)
    stem = document or name.removesuffix(".md")
    divided = [
        page
        for part in parts[1:]
        for page in divide(f"{stem}-{slug(_title(part))}.md", _with_higher_headings(part), stem)
    ]
    listed = "".join(f"- [{page.title}]({page.name})\n" for page in divided)
    return [SitePage(name, f"{parts[0].rstrip()}\n\n{listed}" if listed else parts[0]), *divided]


def anchors(name: str, text: str, pages: Sequence[SitePage]) -> dict[str, str]:
    """Returns where each heading of a document stands now: `stop.md#how-soon` -> `stop-how-soon.md`."""
    before = _slugs(text)
    after = [
        page.name if index == 0 else f"{page.name}#{anchor}"
        for page in pages
        for index, anchor in enumerate(_slugs(page.text))
    ]
    return {f"{name}#{anchor}": place for anchor, place in zip(before, after, strict=True)}


def with_moved_links(text: str, document: str, moved: Mapping[str, str]) -> str:
    """Returns a page of `document` whose links lead to where headings stand now."""

    def link(found: re.Match[str]) -> str:
        target = found[1] if not found[1].startswith("#") else f"{document}{found[1]}"
        return f"]({moved.get(target, found[1])})"

    return re.sub(r"\]\(([\w.-]*#[^)\s]+)\)", link, text)


def num_words(text: str) -> int:
    """Returns the number of words, without blocks of code."""
    return len(re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE).split())


def slug(title: str) -> str:
    """Returns the anchor of a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


def _sections(text: str) -> list[str]:
    """Returns what stands before the first heading of the second level, and each of its sections."""
    starts = [place for place, level, _ in _headings(text) if level == 2]
    ends = [*starts, len(text)]
    return [text[: ends[0]], *(text[start:end] for start, end in zip(starts, ends[1:], strict=True))]


def _title(section: str) -> str:
    return section.partition("\n")[0].lstrip("# ")


def _with_higher_headings(part: str) -> str:
    """Raises the headings of the first section by a level; sections that were joined to it stay below its title."""
    starts = [place for place, level, _ in _headings(part) if level == 2]
    end = starts[1] if len(starts) > 1 else len(part)
    raised, last = "", 0
    for place, _, _ in _headings(part[:end]):
        raised += part[last:place]
        last = place + 1
    return raised + part[last:]


def _headings(text: str) -> Iterator[tuple[int, int, str]]:
    """Yields place, level and title of each heading outside of code."""
    place, is_code = 0, False
    for line in text.splitlines(keepends=True):
        if line.startswith("```"):
            is_code = not is_code
        elif not is_code and (found := _HEADING.match(line)):
            yield place, len(found[1]), found[2]
        place += len(line)


def _slugs(text: str) -> list[str]:
    """Returns the anchors of all headings; the second one with the same title ends in _1."""
    found, counts = [], Counter[str]()
    for _, _, title in _headings(text):
        anchor = slug(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title))
        found.append(f"{anchor}_{counts[anchor]}" if counts[anchor] else anchor)
        counts[anchor] += 1
    return found
