"""The page of a lab in a browser: a one-time link, the workspaces, a token, a link to one trial."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from browser.sample_search import run_search
from browser.seeing import PATIENCE_MS, expect
from home.journals import new_trial, record, report
from interfaces.lab.lab_server import DAY_S, LabServer, new_lab, serving_lab, write_certificate
from interfaces.lab.oidc_provider import CLIENT_ID, CLIENT_SECRET, ProviderOfTests
from parts import needs

from core_sdk import core
from core_sdk._home import Home
from core_sdk._home.pushes import ActionRequests
from core_sdk._workspace.connection import WorkspaceConnection
from core_sdk._workspace.pushing import Pusher

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(params=["http", "https"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LabServer]:
    lab, token = new_lab(tmp_path / "lab")
    for number in range(2):
        record(new_trial(lab.home("vision"), f"trial-{number}"), report(1, loss=0.5))
    options = write_certificate(tmp_path, 1) if request.param == "https" else []
    with serving_lab(lab, token, *options) as server:
        yield server


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []


def invitation(server: LabServer) -> str:
    secret, _ = server.lab.people.issue("invitation", "guest", DAY_S, workspace="vision", role="owner")
    return f"{server.url}/#invitation={secret}"


@needs("browser")
def test_a_guest_signs_in_and_sees_a_workspace(server: LabServer, page: Page) -> None:
    """A one-time link leads to the workspaces, a reload and a second tab stay signed in, and signing out ends it."""
    page.goto(invitation(server))
    expect(page.get_by_role("link", name="vision")).to_be_visible()
    assert page.url == f"{server.url}/"
    page.reload()
    page.get_by_role("link", name="vision").click()
    expect(page.get_by_text("trial-1")).to_be_visible()
    expect(page.get_by_role("link", name="Queue")).to_have_count(0)

    second = page.context.new_page()
    second.goto(f"{server.url}/w/vision/#/trials/1")
    expect(second.get_by_text("trial-0").first).to_be_visible()
    page.goto(f"{server.url}/")
    page.get_by_role("button", name="Sign out").click()

    expect(page.get_by_text("You are not signed in")).to_be_visible()
    second.reload()
    expect(second.get_by_text("this needs somebody who has signed in").first).to_be_visible()


@needs("browser")
def test_an_owner_makes_tokens_and_one_time_links(server: LabServer, page: Page) -> None:
    """The page of the lab shows a new token once, and a link that signs another person in."""
    page.goto(invitation(server))
    page.get_by_role("button", name="Make a token").click()
    token = page.get_by_text("Copy it now").locator("code").inner_text()
    page.get_by_placeholder("name or address").fill("bob")
    page.get_by_role("button", name="Make a one-time link").click()
    link = page.get_by_text("It signs in whoever").locator("code").inner_text()

    assert re.fullmatch(rf"{re.escape(server.url)}/#invitation=lab_[0-9a-f]{{64}}", link)
    page.reload()
    expect(page.get_by_text("Copy it now")).to_have_count(0)
    page.get_by_role("row").filter(has_text="token").get_by_role("button", name="Revoke").first.click()
    expect(page.get_by_role("row").filter(has_text="guest")).to_have_count(2)  # a member, with a session
    assert token not in page.content()


@needs("browser")
def test_a_link_shows_one_trial_to_whoever_has_it(server: LabServer, page: Page) -> None:
    """A link opens its trial, without buttons, and neither the table nor another trial."""
    secret, _ = server.lab.people.issue("link", "ada", DAY_S, workspace="vision", role="reader", only=("trial", 1))

    page.goto(f"{server.url}/w/vision/#token={secret}/trials/1")

    expect(page.get_by_text("trial-0").first).to_be_visible()
    assert secret not in page.url
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)
    page.goto(f"{server.url}/w/vision/#/trials/2")
    expect(page.get_by_text("your role does not allow this").first).to_be_visible()
    expect(page.get_by_text("trial-1")).to_have_count(0)


@needs("browser")
def test_a_link_shows_one_report_to_whoever_has_it(server: LabServer, page: Page) -> None:
    """A link opens the report of an experiment, which is shown in a frame of its own, and nothing else."""
    secret, _ = server.lab.people.issue("link", "ada", DAY_S, workspace="vision", role="reader", only=("report", 1))

    page.goto(f"{server.url}/w/vision/#token={secret}/experiments/1/report")

    expect(page.frame_locator("iframe[title=Report]").get_by_role("heading", level=1)).to_be_visible()
    assert secret not in page.url
    page.goto(f"{server.url}/w/vision/#/experiments/1")
    expect(page.get_by_text("your role does not allow this").first).to_be_visible()


@needs("browser")
def test_each_browser_has_a_theme_of_its_own(server: LabServer, page: Page) -> None:
    """A reader's theme stays after a reload, and is nobody else's."""
    secret, _ = server.lab.people.issue("token", "ada", DAY_S, workspace="vision", role="reader")
    page.goto(f"{server.url}/w/vision/#token={secret}")

    page.get_by_role("button", name="Theme: system").click()
    page.get_by_role("button", name="Theme: light").click()
    page.reload()

    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert not server.lab.home("vision").page.exists()


@needs("browser")
def test_a_person_signs_in_at_a_provider(tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way to the provider and back ends on the page of the lab, which says what the week has brought."""
    lab, token = new_lab(tmp_path / "lab")
    lab.people.set_role("vision", "ada@lab.example", "writer")
    monkeypatch.setenv("CORE_SDK_HOME", str(lab.home("vision").root))
    with core.init(name="digits") as context:
        context.train.report_training_metrics(1, {"loss": 0.5})
    secret = tmp_path / "secret"
    secret.write_text(CLIENT_SECRET)
    secret.chmod(0o600)
    with contextlib.closing(ProviderOfTests()) as provider:
        oidc = [f"--oidc-issuer={provider.issuer}", f"--oidc-client-id={CLIENT_ID}", f"--oidc-secret-file={secret}"]
        with serving_lab(lab, token, *write_certificate(tmp_path, 1), *oidc) as server:
            page.goto(server.url)
            page.get_by_role("link", name="Sign in").click()

            expect(page.get_by_text("ada@lab.example")).to_be_visible()
            assert page.url == f"{server.url}/"
            page.reload()
            page.get_by_role("link", name="1 ended").click()
            expect(page.get_by_role("heading", name="News")).to_be_visible()
            expect(page.get_by_text("trial 1")).to_be_visible()

            page.goto(f"{server.url}/")
            page.get_by_role("button", name="Sign out").click()
            provider.told = {"email": "eve@lab.example"}
            page.get_by_role("link", name="Sign in").click()
            expect(page.get_by_text("eve@lab.example is a member of no workspace")).to_be_visible()


@needs("browser")
def test_a_search_of_another_machine_is_shown_and_steered(home: Home, page: Page, tmp_path: Path) -> None:
    """A lab draws the search that a home has sent, and passes on what the buttons of its experiment ask for."""
    lab, token = new_lab(tmp_path / "lab")
    lab.people.set_role("vision", "bob", "writer")
    run_search(Home.create(home.root).root, tmp_path / "search")
    with home.experiment(1).edit() as experiment:  # as if it went on
        assert experiment.search is not None
        experiment.search = msgspec.structs.replace(experiment.search, state="PAUSED", ended=None)
    with serving_lab(lab, token) as server:
        secret, _ = lab.people.issue("token", "bob", DAY_S, workspace="vision")
        with WorkspaceConnection(f"{server.url}/w/vision", secret) as connection:
            Pusher(home, connection).push(home.trial_ids())
        page.goto(f"{server.url}/w/vision/#token={secret}")
        page.goto(f"{server.url}/w/vision/#/experiments/1")

        expect(page.get_by_role("heading", name="learning rate search")).to_be_visible()
        page.get_by_role("link", name="Search", exact=True).click()
        expect(page.get_by_role("table").get_by_text("trained to the end").first).to_be_visible()
        page.get_by_role("button", name="Resume").click()
        expect(page.locator(".toast").last).to_contain_text("once that machine is heard again")

        (asked,) = ActionRequests(lab.home("vision").root).all()
        assert (asked.verb, asked.by, asked.state) == ("experiment activate", "bob", "waits")
