"""Certificates for the way to Redis, looked at before the first connection."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, NamedTuple

from hapax.core.errors import ConfigurationError

if TYPE_CHECKING:
    from hapax.settings import Settings


class Tls(NamedTuple):
    """PEM files for a ``rediss://`` server.

    ca_file            authorities that it must be signed by; None: those of the system
    certificate_file   our own certificate, for a server that asks for one
    key_file           its key; None: it stands in the same file
    key_password       of the key
    """

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None

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


def files_of(settings: Settings) -> Tls:
    """Return the files that the settings name."""
    dedup = settings.dedup
    password = None if dedup.key_password is None else dedup.key_password.get_secret_value()
    return Tls(dedup.ca_file, dedup.certificate_file, dedup.key_file, password)
