"""A provider of sign-ins on a port of this machine, which does what the standard asks, or what a test tells it."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey

CLIENT_ID = "lab"
CLIENT_SECRET = "a secret: with signs"


class ProviderOfTests:
    """Ada has signed in here, and every browser that comes is hers."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}
        """Claims in place of those that are true."""
        self.only_at_userinfo = False
        self.takes_secret_in_body = False
        """Whether the lab shows its secret there, and not in a header."""
        self.algorithm = "ES256"
        self.signing_key: ECKey | OctKey | None = None
        """A key that is not published."""
        self.key = _new_key()
        self._nonces: dict[str, tuple[str, str]] = {}
        """Code -> nonce and challenge."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider._answer(self, urlsplit(self.path).path, parse_qs(urlsplit(self.path).query))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                provider._answer(self, self.path, parse_qs(body))

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def rotate(self) -> None:
        self.key = _new_key()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, request: BaseHTTPRequestHandler, path: str, query: dict[str, list[str]]) -> None:
        status, location = 200, ""
        answer: Any = {}
        match path:
            case "/.well-known/openid-configuration":
                ends = {"authorization": "authorize", "token": "token", "userinfo": "userinfo"}
                answer = {f"{name}_endpoint": f"{self.issuer}/{end}" for name, end in ends.items()}
                answer |= {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys"}
                if self.takes_secret_in_body:
                    answer["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
            case "/keys":
                answer = KeySet([self.key]).as_dict(private=False)
            case "/authorize":
                code = secrets.token_hex()
                assert query["code_challenge_method"] == ["S256"]
                self._nonces[code] = query["nonce"][0], query["code_challenge"][0]
                location = f"{query['redirect_uri'][0]}?{urlencode({'code': code, 'state': query['state'][0]})}"
                status = 302
            case "/token":
                nonce, challenge = self._nonces.pop(query["code"][0], ("", ""))
                found = base64.urlsafe_b64encode(hashlib.sha256(query["code_verifier"][0].encode()).digest())
                if found.rstrip(b"=").decode() == challenge and self._is_lab(request, query):
                    answer = {"id_token": self._id_token(nonce), "access_token": "a", "token_type": "Bearer"}
                else:
                    status, answer = 400, {"error": "invalid_grant"}
            case "/userinfo":
                answer = {"sub": "1", "email": "ada@lab.example", "email_verified": True} | self.told
        content = json.dumps(answer).encode()
        request.send_response(status)
        request.send_header("content-length", str(len(content)))
        if location:
            request.send_header("location", location)
        request.end_headers()
        request.wfile.write(content)

    def _is_lab(self, request: BaseHTTPRequestHandler, query: dict[str, list[str]]) -> bool:
        if self.takes_secret_in_body:
            return (query["client_id"], query["client_secret"]) == ([CLIENT_ID], [CLIENT_SECRET])
        secret = base64.b64encode(f"{CLIENT_ID}:a%20secret%3A%20with%20signs".encode()).decode()
        return request.headers["authorization"] == f"Basic {secret}"

    def _id_token(self, nonce: str) -> str:
        now = int(time.time())
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "sub": "1",
            "iat": now,
            "exp": now + 300,
            "nonce": nonce,
        }
        if not self.only_at_userinfo:
            claims |= {"email": "ada@lab.example", "email_verified": True, **self.told}
        claims = {name: value for name, value in claims.items() if value is not None}
        header = {"alg": self.algorithm, "kid": self.key.kid}
        return jwt.encode(header, claims, self.signing_key or self.key, algorithms=[self.algorithm])


def _new_key() -> ECKey:
    return ECKey.generate_key("P-256", {"kid": secrets.token_hex(4), "use": "sig"})
