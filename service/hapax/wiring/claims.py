"""The claim store that the settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hapax.claims.kind import StoreOptions, TlsFiles
from hapax.claims.store import kind_of

if TYPE_CHECKING:
    from hapax.core.claim_store import ClaimStore
    from hapax.settings import Settings


def claim_store(
    settings: Settings, *, timeout_s: float | None = None, **told: Any
) -> ClaimStore | None:
    """``timeout_s``: for connecting and each answer; ``told``: as in StoreOptions."""
    dedup = settings.dedup
    if dedup.claims_url is None:
        return None
    password = None if dedup.key_password is None else dedup.key_password.get_secret_value
    options = StoreOptions(
        app=settings.app,
        ttl_ms=dedup.ttl_ms,
        tls=TlsFiles(dedup.ca_file, dedup.certificate_file, dedup.key_file, password),
        answer_timeout_s=dedup.timeout_ms / 1000,
        current=None if dedup.redis_url is None else dedup.redis_url.get_secret_value,
        **told,
    )
    if timeout_s is not None:
        options = options._replace(connect_timeout_s=timeout_s, answer_timeout_s=timeout_s)
    return kind_of(dedup.claims_url).open(dedup.claims_url, options)
