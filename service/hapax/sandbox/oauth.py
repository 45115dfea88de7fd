"""A token service for OAUTHBEARER: one client, one key, and tokens that the brokers trust.

It speaks as much of OAuth 2 as a Kafka client asks for: the client credentials grant (RFC 6749,
section 4.4). Tokens are JWTs signed with RS256 (RFC 7515); brokers find the key in a JWKS file
(RFC 7517).
"""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from hapax.sandbox.ports import LOOPBACK
from hapax.sandbox.tls import openssl

if TYPE_CHECKING:
    from pathlib import Path

    from hapax.sandbox.tls import IssuedCertificate

ISSUER, AUDIENCE, KEY_ID = "https://sandbox.example", "kafka", "sandbox"
_FORM_BYTES_MAX = 1 << 16


class TokenServer:
    """``url`` gives tokens, over TLS, to clients with ``client_id`` and ``client_secret``.

    jwks_file  what brokers check the tokens with
    lifetime_s of a token; a client fetches the next one before it is over
    served     tokens that were given out
    """

    def __init__(
        self, folder: Path, certificate: IssuedCertificate, *, lifetime_s: int = 300
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.client_id, self.client_secret = "hapax-oauth", secrets.token_urlsafe(18)
        self.lifetime_s = lifetime_s
        self.served = 0
        self.jwks_file = folder / "jwks.json"
        self._key = folder / "tokens.key"
        if not self._key.exists():
            openssl("genrsa", "-out", self._key, "2048")
        self.jwks_file.write_text(json.dumps(self._jwks()), encoding="ascii")
        self._server = _Server(self)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate_file, certificate.key_file)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = f"https://{LOOPBACK}:{self._server.server_port}/token"
        threading.Thread(target=self._server.serve_forever, name="tokens", daemon=True).start()

    def close(self) -> None:
        """Stop giving out tokens."""
        self._server.shutdown()
        self._server.server_close()

    def token(self, scope: str = "") -> str:
        """Return a new token for the client."""
        now_s = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": self.client_id,
            "iat": now_s,
            "exp": now_s + self.lifetime_s,
            "jti": secrets.token_hex(8),
            **({"scope": scope} if scope else {}),
        }
        header = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        said = ".".join(_text(json.dumps(part).encode()) for part in (header, claims))
        signature = openssl("dgst", "-sha256", "-sign", self._key, given=said.encode())
        self.served += 1
        return f"{said}.{_text(signature)}"

    def knows(self, authorization: str, form: dict[str, list[str]]) -> bool:
        """Whether client and secret are right, in the header or in the form."""
        login = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        if authorization:
            return secrets.compare_digest(authorization, f"Basic {login}")
        given = form.get("client_id", [""])[0], form.get("client_secret", [""])[0]
        return given == (self.client_id, self.client_secret)

    def _jwks(self) -> dict[str, object]:
        said = openssl("rsa", "-in", self._key, "-noout", "-modulus").decode()
        modulus = bytes.fromhex(said.strip().partition("=")[2])
        exponent = (65537).to_bytes(3, "big")  # openssl's own, unless configured otherwise
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": KEY_ID}
        return {"keys": [key | {"n": _text(modulus), "e": _text(exponent)}]}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, tokens: TokenServer) -> None:
        super().__init__((LOOPBACK, 0), _Handler)
        self.tokens = tokens

    def handle_error(self, _request: object, _address: object) -> None:
        """Log nothing: a client that does not trust the certificate hangs up."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10.0

    def do_POST(self) -> None:  # the name that http.server calls
        length = min(int(self.headers.get("Content-Length") or 0), _FORM_BYTES_MAX)
        form = parse_qs(self.rfile.read(length).decode())
        tokens = self.server.tokens
        if not tokens.knows(self.headers.get("Authorization", ""), form):
            self._answer(HTTPStatus.UNAUTHORIZED, {"error": "invalid_client"})
            return
        token = tokens.token(" ".join(form.get("scope", [])))
        self._answer(
            HTTPStatus.OK,
            {"access_token": token, "token_type": "Bearer", "expires_in": tokens.lifetime_s},
        )

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def _answer(self, status: HTTPStatus, answer: dict[str, object]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _text(content: bytes) -> str:
    """Return base64url without padding, as in every part of a JWT."""
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
