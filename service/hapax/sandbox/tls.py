"""An authority of the sandbox's own, and the certificates that it signs. Made by openssl."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, NamedTuple

from hapax.sandbox import machine
from hapax.sandbox.machine import SandboxError
from hapax.sandbox.ports import LOOPBACK

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT_S = 60.0
_DAYS, _CA_DAYS = 90, 3650
# A curve, because its keys cost milliseconds where those of RSA cost a tenth of a second.
_KIND = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
_NAMES = f"subjectAltName=IP:{LOOPBACK},DNS:localhost\n"


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
    """Run the tool on standard input; return its standard output."""
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
