"""Where the client gets its tokens of OAUTHBEARER, unless it fetches them itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hapax.kafka.msk_token import MskToken
from hapax.kafka.token_file import TokenError, TokenFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.settings import SecuritySettings

_SETTINGS = {TokenFile: "OAUTH_TOKEN_FILE", MskToken: "OAUTH_MSK_REGION"}


def token_source(security: SecuritySettings) -> TokenFile | MskToken | None:
    """Return the property ``oauth_cb`` of a client; None: it needs none."""
    if security.oauth_msk_region is not None:
        return MskToken(security.oauth_msk_region)
    return TokenFile(security.oauth_token_file) if security.oauth_token_file else None


def token_problem(properties: Mapping[str, Any]) -> str:
    """Return why a client with these properties would get no token; empty: it would.

    The client itself waits ten seconds for one, and raises what is no exception (confluent-kafka
    2.16).
    """
    if not isinstance(ask := properties.get("oauth_cb"), TokenFile | MskToken):
        return ""
    try:
        ask("")
    except TokenError as error:
        return f"HAPAX_KAFKA__SECURITY__{_SETTINGS[type(ask)]}: {error}"
    return ""
