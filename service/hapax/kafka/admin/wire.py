"""One connection to one broker, for the few requests that librdkafka does not have.

Connections are made and logged in as the client itself does it, from the same properties: TLS with
the same files, SASL with PLAIN or SCRAM. What only the client can do (tokens, Kerberos) is refused
with a sentence, never left out. Layouts are those of Kafka's message definitions
(clients/src/main/resources/common/message), each request in one version that Kafka 3.0 to 4.x take.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
import struct
from typing import TYPE_CHECKING, Any, Self

from hapax.core.errors import HapaxError

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_S = 10.0
_ANSWER_MAX = 64 << 20
_HANDSHAKE, _AUTHENTICATE = 17, 36
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_FILES = {"ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"}
_READ = {
    *_FILES,
    "ssl.endpoint.identification.algorithm",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
}


class WireError(HapaxError):
    """The broker did not answer, or refused; the text says which."""


class Packer:
    """Builds the bytes of a request; each call returns itself."""

    def __init__(self) -> None:
        self.bytes = b""

    def add(self, form: str, *values: object) -> Self:
        """Append numbers: ``form`` as in ``struct``, big-endian."""
        self.bytes += struct.pack(f">{form}", *values)
        return self

    def size(self, count: int) -> Self:
        """Append the length of a compact array or text: one more, as a variable-length integer."""
        count += 1
        while count > 0x7F:  # seven bits a byte
            self.bytes += bytes([count & 0x7F | 0x80])
            count >>= 7
        self.bytes += bytes([count])
        return self

    def text(self, text: str) -> Self:
        """Append a compact string."""
        self.size(len(text.encode()))
        self.bytes += text.encode()
        return self

    def plain(self, text: str) -> Self:
        """Append a string as old versions have it."""
        return self.add("h", len(text.encode())).raw(text.encode())

    def raw(self, more: bytes) -> Self:
        """Append bytes as they are."""
        self.bytes += more
        return self

    def end(self) -> Self:
        """Append an empty set of tagged fields."""
        return self.raw(b"\0")


class Unpacker:
    """Reads the bytes of an answer from the start on. Raises WireError when they are too few."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, form: str) -> tuple[Any, ...]:
        """Read numbers: ``form`` as in ``struct``, big-endian."""
        size = struct.calcsize(f">{form}")
        return struct.unpack(f">{form}", self.raw(size))

    def number(self, form: str) -> int:
        """Read one number."""
        return int(self.take(form)[0])

    def raw(self, size: int) -> bytes:
        """Read so many bytes."""
        found = self._data[self._at : self._at + max(0, size)]
        if len(found) < size:
            raise WireError("a broker's response is shorter than its stated length")
        self._at += len(found)
        return found

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self.raw(1)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:  # the top bit says that more follows
                return found
            shift += 7

    def size(self) -> int:
        """Read the length of a compact array; 0 also for null."""
        return max(0, self._varint() - 1)

    def text(self) -> str:
        """Read a compact string; empty for null."""
        return self.raw(self.size()).decode("utf-8", "backslashreplace")

    def plain(self) -> str:
        """Read a string as old versions have it; empty for null."""
        return self.raw(max(0, self.number("h"))).decode("utf-8", "backslashreplace")

    def end(self) -> None:
        """Skip tagged fields."""
        for _ in range(self._varint()):
            self._varint()
            self.raw(self._varint())


class Wire:
    """A connection that is logged in. ``properties``: those of a librdkafka client."""

    name = b"hapax"

    def __init__(self, properties: Mapping[str, Any], host: str, port: int) -> None:
        self._place = f"{host}:{port}"
        self._number = 0
        protocol = str(properties.get("security.protocol", "plaintext")).lower()
        problem = unsupported(properties)
        if problem:
            raise WireError(problem)
        try:
            self._socket: socket.socket = socket.create_connection((host, port), TIMEOUT_S)
            if protocol.endswith("ssl"):
                self._socket = _tls(properties).wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            raise self._silent(error) from error
        if protocol.startswith("sasl"):
            try:
                self._login(properties)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def ask(self, api: int, version: int, body: Packer, *, flexible: bool = True) -> Unpacker:
        """Send a request and return its answer, from behind the header on."""
        self._number += 1
        head = struct.pack(">hhih", api, version, self._number, len(self.name)) + self.name
        request = head + (b"\0" if flexible else b"") + body.bytes
        try:
            self._socket.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", self._exactly(4))
            if not 4 <= size <= _ANSWER_MAX:  # the correlation id
                raise WireError(
                    f"the broker {self._place} sent a response that is not of the Kafka protocol"
                )
            answer = Unpacker(self._exactly(size))
        except OSError as error:
            raise self._silent(error) from error
        answer.number("i")
        if flexible:
            answer.end()
        return answer

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            more = self._socket.recv(min(1 << 16, size - len(found)))
            if not more:
                raise WireError(
                    f"the broker {self._place} closed the connection: it does not know the"
                    " request, or refuses protocol or login"
                )
            found += more
        return bytes(found)

    def _silent(self, error: OSError) -> WireError:
        why = getattr(error, "verify_message", "") or error.strerror or type(error).__name__
        return WireError(f"the broker {self._place} does not answer: {why}")

    def _login(self, properties: Mapping[str, Any]) -> None:
        mechanism = str(properties["sasl.mechanism"]).upper()
        hello = self.ask(_HANDSHAKE, 1, Packer().plain(mechanism), flexible=False)
        if hello.number("h"):
            raise WireError(f"the broker {self._place} does not take {mechanism}")
        user, password = str(properties["sasl.username"]), str(properties["sasl.password"])
        if mechanism == "PLAIN":
            self._authenticate(f"\0{user}\0{password}".encode())
        else:
            _scram(self._authenticate, _HASHES[mechanism], user, password)

    def _authenticate(self, data: bytes) -> bytes:
        body = Packer().add("i", len(data)).raw(data)
        answer = self.ask(_AUTHENTICATE, 1, body, flexible=False)
        code, _why = answer.number("h"), answer.plain()
        if code:
            raise WireError(f"the broker {self._place} refuses the configured user or password")
        return answer.raw(answer.number("i"))


def unsupported(properties: Mapping[str, Any]) -> str:
    """Return which property only the client itself can follow; empty when there is none."""
    protocol = str(properties.get("security.protocol", "plaintext")).lower()
    mechanism = str(properties.get("sasl.mechanism", "")).upper()
    if protocol.startswith("sasl") and mechanism not in {"PLAIN", *_HASHES}:
        return (
            f"this request is made without the Kafka client, and only with PLAIN or SCRAM, not"
            f" {mechanism or 'the default mechanism'}: use Kafka's own tool"
        )
    secured = [each for each in properties if each.startswith("ssl.") and each not in _READ]
    if protocol.endswith("ssl") and secured:
        return (
            f"this request is made without the Kafka client, which alone knows {secured[0]}:"
            " use Kafka's own tool"
        )
    return ""


def _tls(properties: Mapping[str, Any]) -> ssl.SSLContext:
    """Return what the client would ask of the broker's certificate, and show of its own."""
    context = ssl.create_default_context(cafile=properties.get("ssl.ca.location"))
    if properties.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    if str(properties.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate := properties.get("ssl.certificate.location"):
        key, password = properties.get("ssl.key.location"), properties.get("ssl.key.password")
        context.load_cert_chain(certificate, key, None if password is None else str(password))
    return context


def _scram(authenticate: Any, kind: str, user: str, password: str) -> None:
    """Log in with SCRAM (RFC 5802), and make sure that the broker knows the password, too."""
    nonce = secrets.token_urlsafe(24)
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    challenge = authenticate(f"n,,{first}".encode()).decode()
    told = dict(word.split("=", 1) for word in challenge.split(","))
    if not told.get("r", "").startswith(nonce):
        raise WireError("a broker answered a different login")
    salted = hashlib.pbkdf2_hmac(
        kind, password.encode(), base64.b64decode(told["s"]), int(told["i"])
    )
    key = hmac.digest(salted, b"Client Key", kind)
    final = f"c=biws,r={told['r']}"
    signed = f"{first},{challenge},{final}".encode()
    signature = hmac.digest(hashlib.new(kind, key).digest(), signed, kind)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    answer = authenticate(f"{final},p={proof}".encode()).decode()
    server = hmac.digest(hmac.digest(salted, b"Server Key", kind), signed, kind)
    if answer != f"v={base64.b64encode(server).decode()}":
        raise WireError(
            "a broker accepted the login without proof that it knows the password: it is not "
            "trusted"
        )
