"""How a guarded sandbox authenticates clients: its listeners, certificates, users and tokens.

| listener | encryption | the client is |
|---|---|---|
| GUARDED  | none       | user and password, SCRAM-SHA-256 |
| TLS      | TLS        | ANONYMOUS, as on the plain listener, and with all rights |
| MUTUAL   | TLS        | the common name of its certificate |
| LOGIN    | TLS        | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER |

A client of the plain listener has no name and all rights: brokers, controllers, and
the sandbox's own requests. Users connect to the others and have the rights that they are granted.
"""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import subprocess
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs

from hapax.sandbox import machine
from hapax.sandbox.machine import SandboxError
from hapax.sandbox.processes import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GUARDED, TLS, MUTUAL, LOGIN = "GUARDED", "TLS", "MUTUAL", "LOGIN"
PROTOCOLS: Mapping[str, str] = {
    GUARDED: "SASL_PLAINTEXT",
    TLS: "SSL",
    MUTUAL: "SSL",
    LOGIN: "SASL_SSL",
}
PLAIN_USER, PLAIN_PASSWORD = "hapax-plain", "plain-in-the-sandbox-only"
"""The one user of PLAIN: brokers read its users from their own settings, at their start."""

_MODULES = "org.apache.kafka.common.security"
_SCRAM = f"{_MODULES}.scram.ScramLoginModule required;"
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed"
_TIMEOUT_S = 60.0
_DAYS, _CA_DAYS = 90, 3650
# A curve, because its keys cost milliseconds where those of RSA cost a tenth of a second.
_KIND = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
_NAMES = f"subjectAltName=IP:{LOOPBACK},DNS:localhost\n"
ISSUER, AUDIENCE, KEY_ID = "https://sandbox.example", "kafka", "sandbox"
_FORM_BYTES_MAX = 1 << 16


class Guard:
    """What servers ask with, and users answer with.

    folder     where all of it lies
    authority  signs certificates that the servers trust, and its own is ``authority.ca_file``
    server     the servers' certificate
    tokens     the token service
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.server = self.authority.issue("server", user="127.0.0.1")
        # Kafka wants certificate and key in one file.
        self._both = folder / "server.both"
        files = (self.server.key_file, self.server.certificate_file)
        self._both.write_bytes(b"".join(file.read_bytes() for file in files))
        self.tokens = TokenServer(folder, self.server)

    def close(self) -> None:
        self.tokens.close()

    @property
    def java_options(self) -> tuple[str, ...]:
        """Options of the brokers' JVM: where the key of the tokens may be read from."""
        url = self.tokens.jwks_file.as_uri()
        return (
            f"-D{_ALLOWED}.urls={url}",
            f"-D{_ALLOWED}.files={self.tokens.jwks_file}",
        )

    def properties(self) -> dict[str, object]:
        properties: dict[str, object] = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            # A session ends after 3 s unless the client logs in again, so that a changed password
            # is noticed.
            "connections.max.reauth.ms": 3000,
            "listener.name.guarded.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.guarded.scram-sha-256.sasl.jaas.config": _SCRAM,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._both,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.ca_file,
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/",
        }
        return properties | {
            f"listener.name.login.{name}": value for name, value in self._logins().items()
        }

    def _logins(self) -> dict[str, object]:
        tokens = f"{_MODULES}.oauthbearer"
        return {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "plain.sasl.jaas.config": (
                f'{_MODULES}.plain.PlainLoginModule required user_{PLAIN_USER}="{PLAIN_PASSWORD}";'
            ),
            "scram-sha-256.sasl.jaas.config": _SCRAM,
            "scram-sha-512.sasl.jaas.config": _SCRAM,
            "oauthbearer.sasl.jaas.config": f"{tokens}.OAuthBearerLoginModule required;",
            "oauthbearer.sasl.server.callback.handler.class": (
                f"{tokens}.OAuthBearerValidatorCallbackHandler"
            ),
            "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self.tokens.jwks_file.as_uri(),
            "oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
            "oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
        }


# -- An authority of the sandbox's own, and the certificates that it signs; made by openssl --------


class IssuedCertificate(NamedTuple):
    """Two PEM files."""

    certificate_file: Path
    key_file: Path


class Authority:
    """Signs certificates; ``ca_file`` is what must be trusted. Everything lies in ``folder``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.ca_file = folder / "ca.pem"
        self._key = folder / "ca.key"
        self._names = folder / "names.cnf"
        if not self.ca_file.exists():
            self._names.write_text(_NAMES, encoding="ascii")
            openssl(
                *("req", "-x509", *_KIND, "-nodes", "-days", str(_CA_DAYS)),
                *("-subj", "/CN=sandbox authority", "-keyout", self._key, "-out", self.ca_file),
            )

    def issue(
        self, name: str, *, user: str | None = None, days: int = _DAYS, password: str | None = None
    ) -> IssuedCertificate:
        """Return a certificate for 127.0.0.1 and localhost, in files of this name.

        user      its common name; default: ``name``
        days      until it expires; -1: it has expired
        password  of the key; None: the key is not encrypted
        """
        request = self._folder / f"{name}.csr"
        made = IssuedCertificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        lock = ["-nodes"] if password is None else ["-passout", f"pass:{password}"]
        subject = ("-subj", f"/CN={user or name}")
        openssl("req", *_KIND, *lock, *subject, "-keyout", made.key_file, "-out", request)
        openssl(
            *("x509", "-req", "-in", request, "-days", str(days), "-out", made.certificate_file),
            *("-CA", self.ca_file, "-CAkey", self._key, "-CAcreateserial"),
            *("-extfile", self._names),
        )
        return made


def openssl(*words: str | Path, given: bytes = b"") -> bytes:
    done = subprocess.run(
        [machine.openssl(), *words],
        input=given,
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise SandboxError(f"openssl {words[0]} failed: {done.stderr.decode()[-500:]}")
    return done.stdout


# -- A token service for OAUTHBEARER: one client, one key, and tokens that the brokers trust -------
# It speaks as much of OAuth 2 as a Kafka client asks for: the client credentials grant (RFC 6749,
# section 4.4). Tokens are JWTs signed with RS256 (RFC 7515); brokers find the key in a JWKS file
# (RFC 7517).


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

    def log_message(self, *_: object) -> None: ...

    def _answer(self, status: HTTPStatus, answer: dict[str, object]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
