"""What a test waits to see. Playwright is imported here only when a test runs, since not every machine has it."""

from __future__ import annotations

import re
from re import Pattern
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page
    from playwright.sync_api._generated import LocatorAssertions


PATIENCE_MS = 60_000
"""Other tests share the processors."""


def expect(locator: Locator) -> LocatorAssertions:
    """Waits until the expectation is met."""
    from playwright.sync_api import expect as expect_of_playwright

    expect_of_playwright.set_options(timeout=PATIENCE_MS)
    return expect_of_playwright(locator, None)


def rows(page: Page) -> Locator:
    """Returns the rows of the table of runs, without its head and the heads of groups."""
    return page.locator(".grid-row:not(.grid-group):not(.waiting)")


def column(page: Page, number: int) -> list[str]:
    """Returns the texts of a column of the table, counted from 1; the first one holds the IDs."""
    return [text.strip() for text in page.locator(f".grid-row > span:nth-child({number + 1})").all_inner_texts()]


def open_settings(page: Page) -> None:
    """Opens the box with the settings of charts, which stays open until a click elsewhere."""
    page.get_by_role("button", name="Settings ▾").click()


def wait_for_query(page: Page, part: str) -> None:
    """Waits until the page's address contains this text after `#`."""
    page.wait_for_function("part => decodeURIComponent(location.hash).includes(part)", arg=part)


def labels(*ends: str) -> list[Pattern[str]]:
    """Returns the labels of curves, which begin with the generated names of their trials."""
    return [re.compile(rf"^\w+-\w+-{re.escape(end)}$") for end in ends]
