"""A guarded sandbox with all ways in: listeners, mechanisms, and a token service.

| listener | encryption | the client is |
|---|---|---|
| GUARDED  | none       | user and password, SCRAM-SHA-256 |
| TLS      | TLS        | ANONYMOUS, as on the plain listener, and with all rights |
| MUTUAL   | TLS        | the common name of its certificate |
| LOGIN    | TLS        | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER |
"""

import base64
import json
import secrets
import ssl
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from urllib.parse import parse_qs

from confluent_kafka.admin import AclBindingFilter
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from hapax.cluster.cluster_state import Right
from hapax.sandbox import Sandbox
from hapax.sandbox.guard import LOGIN, SCRAM, Guard, IssuedCertificate, Rights, _words
from hapax.sandbox.processes import LOOPBACK

GUARDED, TLS, MUTUAL = "GUARDED", "TLS", "MUTUAL"
PLAIN_USER, PLAIN_PASSWORD = "hapax-plain", "plain-in-the-sandbox-only"
"""The one user of PLAIN: brokers read its users from their own settings, at their start."""
_MODULES = "org.apache.kafka.common.security"
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed"
ISSUER, AUDIENCE, KEY_ID = "https://sandbox.example", "kafka", "sandbox"
_FORM_BYTES_MAX = 1 << 16


def withdraw(rights: Rights, user: str, *chosen: Right) -> int:
    """Take back what was allowed; return how many grants went."""
    filters = [AclBindingFilter(*_words(user, right)) for right in chosen]
    answers = rights._admin.delete_acls(filters).values()
    return sum(len(answer.result(30)) for answer in answers)


class WholeGuard(Guard):
    """``tokens``: the token service, to be closed after the sandbox."""

    listeners = MappingProxyType(
        {GUARDED: "SASL_PLAINTEXT", TLS: "SSL", MUTUAL: "SSL", LOGIN: "SASL_SSL"}
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.tokens = TokenServer(folder, self.server)
        self._jwks_url = self.tokens.jwks_file.as_uri()
        # Where the key of the tokens may be read from.
        self.java_options = (
            f"-D{_ALLOWED}.urls={self._jwks_url}",
            f"-D{_ALLOWED}.files={self.tokens.jwks_file}",
        )

    def properties(self) -> dict[str, object]:
        logins = {f"listener.name.login.{name}": value for name, value in self._logins().items()}
        return {
            **super().properties(),
            "listener.name.guarded.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.guarded.scram-sha-256.sasl.jaas.config": SCRAM,
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/",
            **logins,
        }

    def _logins(self) -> dict[str, object]:
        tokens = f"{_MODULES}.oauthbearer"
        return {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "plain.sasl.jaas.config": (
                f'{_MODULES}.plain.PlainLoginModule required user_{PLAIN_USER}="{PLAIN_PASSWORD}";'
            ),
            "scram-sha-256.sasl.jaas.config": SCRAM,
            "oauthbearer.sasl.jaas.config": f"{tokens}.OAuthBearerLoginModule required;",
            "oauthbearer.sasl.server.callback.handler.class": (
                f"{tokens}.OAuthBearerValidatorCallbackHandler"
            ),
            "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self._jwks_url,
            "oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
            "oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
        }


def tokens_of(sandbox: Sandbox) -> "TokenServer":
    guard = sandbox.guard
    assert isinstance(guard, WholeGuard)
    return guard.tokens


class TokenServer:
    """``url`` gives tokens, over TLS, to clients with ``client_id`` and ``client_secret``.

    It speaks as much of OAuth 2 as a Kafka client asks for: the client credentials grant (RFC 6749,
    section 4.4).

    jwks_file  what brokers check the tokens with
    lifetime_s of a token; a client fetches the next one before it is over
    served     tokens that were given out
    """

    def __init__(self, folder: Path, certificate: IssuedCertificate) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.client_id, self.client_secret = "hapax-oauth", secrets.token_urlsafe(18)
        self.lifetime_s = 300
        self.served = 0
        self.jwks_file = folder / "jwks.json"
        self._key = RSAKey.generate_key(2048, {"kid": KEY_ID, "use": "sig", "alg": "RS256"})
        public = KeySet([self._key]).as_dict(private=False)
        self.jwks_file.write_text(json.dumps(public), encoding="ascii")
        self._server = _Server(self)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate_file, certificate.key_file)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = f"https://{LOOPBACK}:{self._server.server_port}/token"
        threading.Thread(target=self._server.serve_forever, name="tokens", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def token(self, scope: str = "") -> str:
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
        self.served += 1
        return jwt.encode({"alg": "RS256", "kid": KEY_ID}, claims, self._key)

    def knows(self, authorization: str, form: dict[str, list[str]]) -> bool:
        """Whether client and secret are right, in the header or in the form."""
        login = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        if authorization:
            return secrets.compare_digest(authorization, f"Basic {login}")
        given = form.get("client_id", [""])[0], form.get("client_secret", [""])[0]
        return given == (self.client_id, self.client_secret)


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

    def log_message(self, *_: object) -> None: ...

    def _answer(self, status: HTTPStatus, answer: dict[str, object]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
