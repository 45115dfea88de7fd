"""Tokens of OAUTHBEARER for Amazon MSK: requests that AWS' own library signs, here in the process.

The identity is what AWS' libraries find: variables, the role of a Kubernetes service account or of
the instance. A token is valid for 15 minutes, and signed again whenever the client wants one.
"""

from __future__ import annotations

from importlib.util import find_spec

import msgspec

from hapax.core.errors import ConfigurationError
from hapax.kafka.token_file import TokenError

NOT_INSTALLED = "the signer of Amazon MSK is not installed; run: pip install 'hapax-kafka[msk-iam]'"
_MS = 1000


def require_signer() -> None:
    """Raise ConfigurationError unless AWS' library is there; nothing is imported or asked."""
    if find_spec("aws_msk_iam_sasl_signer") is None:
        raise ConfigurationError([f"HAPAX_KAFKA__SECURITY__OAUTH_MSK_REGION: {NOT_INSTALLED}"])


class MskToken(msgspec.Struct, frozen=True):
    """What a client asks for its tokens: its property ``oauth_cb``."""

    region: str

    def __call__(self, _config: str) -> tuple[str, float]:
        """Return a token and until when it is valid, Unix time in seconds.

        Raises TokenError; the client repeats none of its words, and asks again 10 s later.
        """
        try:
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        except ImportError:
            raise TokenError(NOT_INSTALLED) from None
        try:
            token, until_ms = MSKAuthTokenProvider.generate_auth_token(self.region)
        except AttributeError:  # the signer asks nothing for its key
            raise TokenError("AWS' libraries find no credentials in this process") from None
        except Exception as error:  # noqa: BLE001 - whatever the identity's service answers
            # Its text may hold parts of requests.
            raise TokenError(f"no token could be signed: {type(error).__name__}") from None
        return str(token), until_ms / _MS
