"""Rules of the claim store's certificates: they need TLS, and each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.claims.store import kind_of
from hapax.settings.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.settings.model import Settings

_DEDUP: Final = "HAPAX_DEDUP__"
_URL: Final = f"{_DEDUP}REDIS_URL"


def claim_problems(settings: Settings) -> Iterator[Problem]:
    """Yield every rule of the claim store's certificates that these settings break."""
    dedup = settings.dedup
    files = {
        "CA_FILE": dedup.ca_file,
        "CERTIFICATE_FILE": dedup.certificate_file,
        "KEY_FILE": dedup.key_file,
        "KEY_PASSWORD": dedup.key_password,
    }
    if dedup.claims_url is None:
        return
    kind = kind_of(dedup.claims_url)
    encrypted = kind.transport(dedup.claims_url).encrypted
    for name, value in files.items():
        # Left alone, the service would connect without the protection that somebody asked for.
        if value is not None and not encrypted:
            yield Problem(
                (_URL, _DEDUP + name),
                f"{_DEDUP}{name} is set but {_URL} has no TLS: begin the address with "
                f"{kind.tls_scheme}:// or remove the other",
            )
    for name, needed in (
        ("CERTIFICATE_FILE", "KEY_FILE"),
        ("KEY_FILE", "CERTIFICATE_FILE"),
        ("KEY_PASSWORD", "KEY_FILE"),
    ):
        if files[name] is not None and files[needed] is None:
            yield Problem(
                (_DEDUP + name, _DEDUP + needed),
                f"{_DEDUP}{name} needs {_DEDUP}{needed}, which is unset: set both or neither",
            )
