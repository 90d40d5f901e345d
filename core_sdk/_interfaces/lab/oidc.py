"""Sign-in by OpenID Connect: the authorization code flow with PKCE, and the checks of what the provider answers.

Nothing of the provider is kept: its addresses and its keys are asked for at each sign-in, of which there are few. So a
key that it replaces is found, and the server starts while the provider is away. State, nonce and verifier are made of
one secret of the browser: a code is of no use in another one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import requests

from core_sdk._ground.decoding import json_decoder
from core_sdk._interfaces.server.errors import RequestError
from core_sdk._interfaces.server.serving import is_loopback
from core_sdk.errors import MissingDependencyError

SECRET_BYTES = 32
_TIMEOUT_S = 10.0
_LEEWAY_S = 60
"""The most by which the clock of the provider may differ from ours."""
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
"""The algorithms that sign with a key that only the provider has."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class OidcProvider:
    """A provider, and the lab as it knows it."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)


class _Metadata(msgspec.Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _Tokens(msgspec.Struct, frozen=True):
    id_token: str
    access_token: str = ""


def provider_of(issuer: str | None, client_id: str | None, secret_file: Path | None) -> OidcProvider | None:
    """Returns the provider that the options name, or None without them. Raises `ValueError` or `OSError`."""
    if issuer is None and client_id is None and secret_file is None:
        return None
    if issuer is None or client_id is None or secret_file is None:
        raise ValueError("--oidc-issuer, --oidc-client-id and --oidc-secret-file belong together")
    parts = urlsplit(issuer)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise ValueError(f"{issuer!r} is not an address such as https://accounts.example.org")
    if secret_file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ValueError(f"others may read {secret_file}: chmod 600 {secret_file}")
    secret = secret_file.read_text().strip()
    if not secret:
        raise ValueError(f"{secret_file} is empty")
    try:
        import joserfc  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError("joserfc", "server", "sign-in by OpenID Connect") from error
    return OidcProvider(issuer, client_id, secret)


def state_of(browser_secret: str) -> str:
    return _derived(browser_secret, "state")


def sign_in_address(provider: OidcProvider, browser_secret: str, return_to: str) -> str:
    """Returns where a browser signs in. Raises `RequestError` if the provider is away."""
    challenge = hashlib.sha256(_derived(browser_secret, "verifier").encode()).digest()
    endpoint = _metadata(provider).authorization_endpoint
    query = {
        "response_type": "code",
        "client_id": provider.client_id,
        "redirect_uri": return_to,
        "scope": "openid email",
        "state": state_of(browser_secret),
        "nonce": _derived(browser_secret, "nonce"),
        "code_challenge": _base64url(challenge),
        "code_challenge_method": "S256",
    }
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"


def confirmed_address(provider: OidcProvider, browser_secret: str, return_to: str, code: str) -> str:
    """Returns the e-mail address of whoever has signed in with the provider, which has confirmed it.

    Raises `RequestError` if the provider is away, refuses the code, or answers with what does not hold.
    """
    metadata = _metadata(provider)
    body = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": return_to,
        "code_verifier": _derived(browser_secret, "verifier"),
    }
    auth: tuple[str, str] | None = (quote(provider.client_id, safe=""), quote(provider.client_secret, safe=""))
    if "client_secret_basic" not in metadata.token_endpoint_auth_methods_supported:
        auth, body = None, body | {"client_id": provider.client_id, "client_secret": provider.client_secret}
    tokens = _asked("POST", metadata.token_endpoint, _Tokens, data=body, auth=auth)
    claims = _claims(provider, tokens.id_token, _asked("GET", metadata.jwks_uri, dict), browser_secret)
    if "email" not in claims and metadata.userinfo_endpoint:
        bearer = {"Authorization": f"Bearer {tokens.access_token}"}
        told = _asked("GET", metadata.userinfo_endpoint, dict, headers=bearer)
        claims = told if told.get("sub") == claims["sub"] else {}
    email = claims.get("email")
    if not isinstance(email, str) or claims.get("email_verified") is not True:
        words = "the provider does not say that the address of your e-mail is confirmed"
        raise RequestError(403, "no_confirmed_address", words, "Confirm it there.")
    return email


def _claims(provider: OidcProvider, id_token: str, keys: Any, browser_secret: str) -> Mapping[str, Any]:
    """Returns what a token says that is signed by one of the keys, for this lab and this browser, and not expired."""
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    wanted = jwt.JWTClaimsRegistry(
        leeway=_LEEWAY_S,
        iss={"essential": True, "value": provider.issuer},
        aud={"essential": True, "value": provider.client_id},
        sub={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
        nonce={"essential": True, "value": _derived(browser_secret, "nonce")},
        azp={"value": provider.client_id},
    )
    try:
        claims = jwt.decode(id_token, KeySet.import_key_set(keys), algorithms=_ALGORITHMS).claims
        wanted.validate(claims)
    except (JoseError, ValueError, TypeError, KeyError) as error:  # of keys, joserfc raises all of these
        words = f"what the provider says does not hold: {error}"
        raise RequestError(401, "bad_id_token", words, "Sign in again.") from error
    return claims


def _metadata(provider: OidcProvider) -> _Metadata:
    address = f"{provider.issuer.removesuffix('/')}/.well-known/openid-configuration"
    metadata = _asked("GET", address, _Metadata)
    if metadata.issuer != provider.issuer:
        words = f"the provider calls itself {metadata.issuer}, and not {provider.issuer}"
        raise RequestError(503, "provider_away", words, "Give --oidc-issuer as the provider writes it.")
    return metadata


def _asked(method: str, address: str, kind: type[_T], **arguments: Any) -> _T:
    try:
        answer = requests.request(method, address, timeout=_TIMEOUT_S, allow_redirects=False, **arguments)
        if method == "POST" and 400 <= answer.status_code < 500:
            words = f"the provider refuses it with status {answer.status_code}"
            raise RequestError(401, "refused_by_provider", words, "Sign in again.")
        answer.raise_for_status()
        return json_decoder(kind)(answer.content)
    except (requests.RequestException, msgspec.MsgspecError) as error:
        words = "the provider of sign-ins does not answer as it should"
        raise RequestError(503, "provider_away", words, "Try again later.") from error


def _derived(browser_secret: str, purpose: str) -> str:
    return _base64url(hmac.digest(browser_secret.encode(), purpose.encode(), "sha256"))


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
