"""The record path in C (src/module.c says what is where); hapax.kafka.native is its only caller.

INTERFACE  changes with every change that hapax.kafka.native has to know of
PLUGIN     path for ``plugin.library.paths``
"""

from hapax_fast import _native
from hapax_fast._native import (
    Ids,
    Intake,
    Records,
    captured,
    clients,
    digest,
    failures,
    held,
    preview,
    release,
    requests_disconnects,
    requests_lost,
    requests_unanswered,
    send,
    setup,
)

INTERFACE = 3
PLUGIN: str = str(_native.__file__)

__all__ = [
    "INTERFACE",
    "PLUGIN",
    "Ids",
    "Intake",
    "Records",
    "captured",
    "clients",
    "digest",
    "failures",
    "held",
    "preview",
    "release",
    "requests_disconnects",
    "requests_lost",
    "requests_unanswered",
    "send",
    "setup",
]
