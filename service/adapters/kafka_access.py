"""Why no broker lets us in, or can be reached: asked for when a first request has failed.

The client's own answer is then "transport failure" or "timed out"; the cause is only told to an
error callback, which clients of the service do without.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from service.adapters.kafka_clients import consumer_properties
from service.adapters.kafka_errors import describe
from service.adapters.kafka_orphans import admin_properties

if TYPE_CHECKING:
    from service.settings import Settings

WAIT_S = 3.0
TURN_S = 0.1
TEXT_MAX = 300

_CAUSES = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE})  # noqa: SLF001 - the only names
"""Login or token refused, TLS failed, unknown host."""

_SIGNS = ("SSL routines", "security.protocol")
"""What a broken connection says of itself when TLS, or its absence, is the reason."""

_UNREACHED = "Connect to "


def refusal(settings: Settings) -> str | None:
    """Return what a broker, the token service or the network says to us in one line, if anything.

    Of several brokers one that refuses us counts more than one that is down.

    Holds no secret of ours: it is what the other side says, or what TLS makes of its certificate.
    """
    heard: list[KafkaError] = []
    properties = admin_properties(consumer_properties(settings))
    listening: dict[str, Any] = {"log_level": 0, "error_cb": heard.append}
    admin = AdminClient({**properties, **listening})
    give_up_s = time.monotonic() + WAIT_S
    while time.monotonic() < give_up_s:
        with suppress(KafkaException):
            admin.list_topics(timeout=TURN_S)
            return None
        admin.poll(0)
        causes = [error for error in heard if _tells(error)]
        if causes:
            return _printable(f"{describe(causes[0])}{_hint(causes[0])}")
        if any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in heard):  # noqa: SLF001 - as above
            break
    unreached = (error for error in heard if _UNREACHED in error.str())
    found = next(unreached, None)
    return None if found is None else _printable(describe(found))


def _tells(error: KafkaError) -> bool:
    return error.code() in _CAUSES or any(sign in error.str() for sign in _SIGNS)


def _hint(error: KafkaError) -> str:
    # With TLS 1.3 a client has long shaken hands when its certificate is judged.
    refused = "certificate" in error.str() and "alert" in error.str()
    return ": our certificate is refused, or one is wanted" if refused else ""


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)[:TEXT_MAX]
