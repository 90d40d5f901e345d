"""Sign-in by OpenID Connect: who comes in, and what of a provider's answers is refused."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
import requests
from interfaces.lab.lab_server import new_lab, serving_lab, write_certificate
from interfaces.lab.lab_visitor import DAY_S, SITE, LabVisitor
from interfaces.lab.oidc_provider import CLIENT_ID, CLIENT_SECRET, ProviderOfTests
from interfaces.server.visitor import Answer
from joserfc.jwk import ECKey, OctKey
from parts import needs, require
from processes import wait_for

from core_sdk._interfaces.lab.oidc import OidcProvider, provider_of
from core_sdk._interfaces.lab.people_routes import COOKIE
from core_sdk._interfaces.lab.site import plan_site

ME = "/api/v1/me"
ADA = "ada@lab.example"


@pytest.fixture
def provider() -> Iterator[ProviderOfTests]:
    provider = ProviderOfTests()
    yield provider
    provider.close()


@pytest.fixture
def lab(tmp_path: Path, provider: ProviderOfTests) -> Iterator[LabVisitor]:
    """A lab of which ada is a writer, by her address."""
    oidc = OidcProvider(provider.issuer, CLIENT_ID, CLIENT_SECRET)
    visitor = LabVisitor(tmp_path / "lab", dataclasses.replace(SITE, provider=oidc))
    visitor.lab.people.set_role("vision", ADA, "writer")
    yield visitor
    visitor.close()


def begun(lab: LabVisitor) -> tuple[str, str]:
    """Returns where the provider sends a browser back to, once somebody has signed in there, and the cookie of it."""
    answer = lab.ask("nobody", "GET", "/oidc/begin")
    assert answer.status == 303, answer.content
    cookie = SimpleCookie(answer.headers["set-cookie"])
    (name,) = cookie
    assert (cookie[name]["secure"], cookie[name]["httponly"], cookie[name]["samesite"].lower()) == (True, True, "lax")
    back = requests.get(answer.headers["location"], allow_redirects=False, timeout=60).headers["location"]
    assert back.startswith(f"{SITE.url}/oidc/callback?")
    return back.removeprefix(SITE.url), f"{name}={cookie[name].value}"


def signed_in(lab: LabVisitor) -> Answer:
    """Comes back from a provider of the same site, whose pages make a browser send the cookie of a session, too."""
    address, cookie = begun(lab)
    return lab.ask("nobody", "GET", address, cookie=f"{COOKIE}=lab_ended; {cookie}", sec_fetch_site="same-site")


def me(lab: LabVisitor, answer: Answer) -> object:
    """Returns who has come in by this answer."""
    assert (answer.status, answer.headers.get("location")) == (303, "/"), answer.content
    cookies = SimpleCookie(answer.headers["set-cookie"])
    return lab.ask("nobody", "GET", ME, cookie=f"{COOKIE}={cookies[COOKIE].value}").json


def assert_refused(lab: LabVisitor, answer: Answer, status: int, words: str) -> None:
    assert answer.status == status, answer.content
    assert words in answer.content.decode()
    assert f"{COOKIE}=" not in answer.headers.get("set-cookie", "")
    assert not [one for one in lab.lab.people.read().credentials.values() if one.kind == "session"]


def test_a_member_signs_in_and_out_by_their_address(lab: LabVisitor) -> None:
    """Whoever is a member by an address that the provider has confirmed gets a session, and its end is in the log."""
    answer = signed_in(lab)

    assert me(lab, answer) == {"person": ADA, "workspaces": {"vision": "writer"}}
    cookie = f"{COOKIE}={SimpleCookie(answer.headers['set-cookie'])[COOKIE].value}"
    lab.ask("nobody", "POST", "/api/v1/session/actions/end", x_core_sdk_action="1", cookie=cookie)
    assert lab.ask("nobody", "GET", ME, cookie=cookie).status == 401
    deeds = [msgspec.json.decode(line) for line in lab.lab.log.read_bytes().splitlines()]
    assert [(one["person"], one["what"], one["status"]) for one in deeds] == [
        (ADA, "GET /oidc/callback", 303),
        (ADA, "POST /api/v1/session/actions/end", 200),
    ]


def test_an_invitation_waits_for_its_address(lab: LabVisitor, provider: ProviderOfTests) -> None:
    """Who was invited comes in by signing in, however their address is written, and nobody else has their role."""
    provider.told = {"email": "Bob@Lab.Example"}
    lab.lab.people.issue("invitation", "bob@lab.example", DAY_S, workspace="speech", role="owner")
    lab.lab.people.issue("invitation", "eve@lab.example", DAY_S, workspace="vision", role="owner")
    lab.lab.people.issue("invitation", "bob@lab.example", 0.0, workspace="vision", role="owner")

    found = me(lab, signed_in(lab))

    assert found == {"person": "bob@lab.example", "workspaces": {"speech": "owner"}}
    assert "eve@lab.example" not in lab.lab.people.read().members["vision"]


def test_an_address_that_only_userinfo_tells_is_known(lab: LabVisitor, provider: ProviderOfTests) -> None:
    """A provider may tell the address at its own endpoint, but only of the one who has signed in."""
    provider.only_at_userinfo = True

    first = me(lab, signed_in(lab))
    provider.told = {"sub": "2"}
    second = signed_in(lab)

    assert first == {"person": ADA, "workspaces": {"vision": "writer"}}
    assert second.status == 403


@pytest.mark.parametrize("told", [{"email": "eve@lab.example"}, {"email": "ada@lab.example.org"}])
def test_an_address_of_no_member_is_refused(lab: LabVisitor, provider: ProviderOfTests, told: dict[str, str]) -> None:
    """Nobody comes in only because the provider knows them; the log says who has tried."""
    provider.told = told

    assert_refused(lab, signed_in(lab), 403, "is a member of no workspace")
    deed = msgspec.json.decode(lab.lab.log.read_bytes().splitlines()[-1])
    assert (deed["person"], deed["status"]) == (told["email"], 403)


@pytest.mark.parametrize("told", [{"email_verified": False}, {"email_verified": "false"}, {"email_verified": None}])
def test_an_address_that_is_not_confirmed_is_refused(
    lab: LabVisitor, provider: ProviderOfTests, told: dict[str, object]
) -> None:
    """A provider that lets people name any address lets nobody in by it."""
    provider.told = told

    assert_refused(lab, signed_in(lab), 403, "is confirmed")


FALSE_CLAIMS = {
    "nonce of another sign-in": {"nonce": "x"},
    "no nonce": {"nonce": None},
    "for another program": {"aud": "other"},
    "for several, by another": {"aud": [CLIENT_ID, "other"], "azp": "other"},
    "of another issuer": {"iss": "https://accounts.example.org"},
    "expired": {"exp": int(time.time()) - 3600},
    "never expires": {"exp": None},
    "of the future": {"iat": int(time.time()) + 3600},
    "of nobody": {"sub": None},
}


@pytest.mark.parametrize("told", FALSE_CLAIMS.values(), ids=FALSE_CLAIMS)
def test_a_token_that_is_not_for_this_sign_in_is_refused(
    lab: LabVisitor, provider: ProviderOfTests, told: dict[str, object]
) -> None:
    """What the provider has signed counts for this lab, this browser and this time only."""
    provider.told = told

    assert_refused(lab, signed_in(lab), 401, "does not hold")


@pytest.mark.parametrize("algorithm", ["none", "HS256", "ES256"])
def test_a_token_that_the_provider_has_not_signed_is_refused(
    lab: LabVisitor, provider: ProviderOfTests, algorithm: str
) -> None:
    """Neither an unsigned token, nor one signed by the lab's secret or by a foreign key of the same name, counts."""
    provider.algorithm = algorithm
    is_by_secret = algorithm != "ES256"
    provider.signing_key = OctKey.import_key(CLIENT_SECRET) if is_by_secret else ECKey.generate_key("P-256")

    assert_refused(lab, signed_in(lab), 401, "does not hold")


def test_a_provider_may_want_the_secret_in_the_body(lab: LabVisitor, provider: ProviderOfTests) -> None:
    """The lab shows its secret in the way that the provider names."""
    provider.takes_secret_in_body = True

    assert me(lab, signed_in(lab)) == {"person": ADA, "workspaces": {"vision": "writer"}}


def test_a_key_that_was_replaced_is_found(lab: LabVisitor, provider: ProviderOfTests) -> None:
    """After the provider has replaced its key people sign in, and what the old key signs counts no more."""
    me(lab, signed_in(lab))
    old = provider.key
    provider.rotate()

    me(lab, signed_in(lab))
    provider.signing_key = old

    assert signed_in(lab).status == 401


def test_a_code_is_of_use_once_and_in_its_own_browser(lab: LabVisitor) -> None:
    """The state of another browser, none, and a code that was used already sign nobody in."""
    address, cookie = begun(lab)
    other_address, _ = begun(lab)
    code = parse_qs(urlsplit(other_address).query)["code"][0]
    own_state = parse_qs(urlsplit(address).query)["state"][0]
    injected = f"/oidc/callback?code={code}&state={own_state}"

    for asked, sent in [(other_address, cookie), (address, ""), (address, cookie.partition("=")[0] + "=")]:
        assert_refused(lab, lab.ask("nobody", "GET", asked, cookie=sent), 401, "another browser")
    assert_refused(lab, lab.ask("nobody", "GET", injected, cookie=cookie), 401, "refuses it")  # PKCE
    me(lab, lab.ask("nobody", "GET", address, cookie=cookie))
    assert lab.ask("nobody", "GET", address, cookie=cookie).status == 401


def test_a_provider_that_is_away_keeps_nobody_else_out(lab: LabVisitor, provider: ProviderOfTests) -> None:
    """Without the provider nobody signs in by it, and all others go on."""
    address, cookie = begun(lab)
    provider.close()

    assert lab.ask("nobody", "GET", "/oidc/begin").status == 503
    assert_refused(lab, lab.ask("nobody", "GET", address, cookie=cookie), 503, "does not answer")
    assert lab.ask("writer", "GET", "/w/vision/api/v1/runs").status == 200


def test_a_lab_without_a_provider_says_so(tmp_path: Path) -> None:
    """The page offers a sign-in only where there is one."""
    visitor = LabVisitor(tmp_path / "lab")

    assert visitor.ask("nobody", "GET", "/api/v1/sign-in").json == {"oidc": False}
    assert visitor.ask("nobody", "GET", "/oidc/begin").status == 404
    assert visitor.ask("nobody", "GET", "/oidc/callback?code=x").status == 404
    visitor.close()


def test_options_that_would_give_the_secret_away_are_refused(tmp_path: Path) -> None:
    """The secret lies in a file of one's own, and sign-ins go by https."""
    secret = tmp_path / "secret"
    secret.write_text("s\n")
    secret.chmod(0o640)

    with pytest.raises(ValueError, match="chmod 600"):
        provider_of("https://accounts.example.org", "lab", secret)
    secret.chmod(0o600)
    with pytest.raises(ValueError, match="belong together"):
        provider_of("https://accounts.example.org", None, secret)
    with pytest.raises(ValueError, match="is not an address"):
        provider_of("http://accounts.example.org", "lab", secret)
    found = provider_of("https://accounts.example.org", "lab", secret)
    assert found == OidcProvider("https://accounts.example.org", "lab", "s")
    assert "'s'" not in repr(found)
    with pytest.raises(ValueError, match="needs https"):
        plan_site("127.0.0.1", 1, url=None, has_tls=False, proxies=(), person_header="", provider=found)


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=60).ok
    except requests.ConnectionError:
        return False


@needs("oidc-provider")
def test_a_person_signs_in_by_a_provider_of_its_own(tmp_path: Path, free_port: int) -> None:
    """A provider that others have written lets a member into a lab by https, and refuses a code that was used."""
    require("oidc-provider")
    lab, token = new_lab(tmp_path / "lab")
    lab.people.issue("invitation", ADA, DAY_S, workspace="vision", role="writer")
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    secret.chmod(0o600)
    issuer = f"http://127.0.0.1:{free_port}"
    claims = '{"sub": "1", "email": "ada@lab.example", "email_verified": true}'
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(free_port), "--user-claims", claims]
    options = [f"--oidc-issuer={issuer}", "--oidc-client-id=lab", f"--oidc-secret-file={secret}"]
    with (
        subprocess.Popen([*command, "--require-nonce=true"], stderr=subprocess.DEVNULL) as provider,
        serving_lab(lab, token, *write_certificate(tmp_path, 1), *options) as server,
        requests.Session() as browser,
    ):
        browser.trust_env = False
        browser.verify = str(tmp_path / "chain.pem")
        url = server.url.replace("127.0.0.1", "localhost")
        try:
            wait_for(lambda: answers(issuer))
            at_provider = browser.get(f"{url}/oidc/begin", allow_redirects=False).headers["location"]
            back = requests.post(at_provider, {"sub": "1"}, allow_redirects=False, timeout=60).headers["location"]
            begun = browser.cookies.copy()
            landed = browser.get(back.replace("127.0.0.1", "localhost"), allow_redirects=False)
            found = browser.get(f"{url}{ME}").json()
            browser.cookies.update(begun)
            again = browser.get(landed.url)
        finally:
            provider.terminate()

    assert (landed.status_code, landed.headers["location"]) == (303, "/")
    assert found == {"person": ADA, "workspaces": {"vision": "writer"}}
    assert again.status_code == 401
