"""The record path in C (src/module.c says what is where); hapax.kafka.native is its only caller.

PLUGIN  path for ``plugin.library.paths``
"""

from hapax_fast import _native
from hapax_fast._native import (
    Ids,
    Intake,
    Records,
    captured,
    clients,
    digest,
    held,
    preview,
    release,
    requests_disconnects,
    requests_lost,
    requests_unanswered,
    send,
    setup,
)

PLUGIN: str = str(_native.__file__)

__all__ = [
    "PLUGIN",
    "Ids",
    "Intake",
    "Records",
    "captured",
    "clients",
    "digest",
    "held",
    "preview",
    "release",
    "requests_disconnects",
    "requests_lost",
    "requests_unanswered",
    "send",
    "setup",
]
