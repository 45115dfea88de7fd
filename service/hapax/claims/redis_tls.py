"""Certificates for the way to Redis, looked at before the first connection."""

from __future__ import annotations

import ssl

from hapax.claims.kind import TlsFiles
from hapax.core.errors import ConfigurationError


class Tls(TlsFiles):
    """PEM files for a ``rediss://`` server."""

    __slots__ = ()

    def options(self) -> dict[str, object]:
        """Return the client's options; raise ConfigurationError for files that cannot be used.

        The client would only open them with its first connection, and a missing file would look
        like a server that is away.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise ConfigurationError([_unreadable("CA file", self.ca_file, error)]) from None
        options = {"ssl_ca_certs": self.ca_file} if self.ca_file else {}
        if self.certificate_file is None:
            return dict(options)
        try:
            # An empty password keeps the library from asking for one on the terminal.
            password = self.key_password or ""
            context.load_cert_chain(self.certificate_file, self.key_file, password)
        except (OSError, ValueError) as error:
            files = f"{self.certificate_file} with {self.key_file or 'the key in it'}"
            raise ConfigurationError([_unreadable("certificate", files, error)]) from None
        return {
            **options,
            "ssl_certfile": self.certificate_file,
            "ssl_keyfile": self.key_file or self.certificate_file,
            "ssl_password": self.key_password,
        }


def _unreadable(what: str, path: str | None, error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return f"The {what} for Redis cannot be used: {path}: {reason or 'key or password is wrong'}."


NO_FILES = Tls()
