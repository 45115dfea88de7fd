"""Rules of later tries: where records wait, and what cannot wait yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.settings.base import Problem
from hapax.settings.value_types import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.settings.model import Settings

_TOPIC: Final = "HAPAX_RETRY__TOPIC"
_LATER: Final = "HAPAX_RETRY__LATER"
_ORDER: Final = "HAPAX_RETRY__ORDER"
_GROUP: Final = "HAPAX_GROUP__PROTOCOL"
_GUARANTEE: Final = "HAPAX_GUARANTEE"
_CALLS: Final = "HAPAX_CALL__ORDER"
_DELAY: Final = "HAPAX_RETRY__DELAY"
_DELAY_MAX: Final = "HAPAX_RETRY__DELAY_MAX"


def retry_problems(settings: Settings) -> Iterator[Problem]:
    """Yield every rule of later tries that these settings break."""
    retry, topic = settings.retry, settings.retry_topic
    if retry.order == "key":
        yield from _by_key(settings)
    if retry.delay_ms > retry.delay_max_ms:
        yield Problem(
            (_DELAY, _DELAY_MAX),
            f"{_DELAY}={duration_text(retry.delay_ms)} must not be longer than "
            f"{_DELAY_MAX}={duration_text(retry.delay_max_ms)}: lower the first or raise the "
            "second",
        )
    if topic is None:
        return
    setting = _TOPIC if retry.topic else _LATER
    if settings.engine != "worker":
        yield Problem(
            (setting, "HAPAX_ENGINE"),
            f"{setting} needs HAPAX_ENGINE=worker, which is {settings.engine}: nothing there reads "
            "records back when they are due; remove it, or choose the worker",
        )
    if settings.fast == "on":
        yield Problem(
            (setting, "HAPAX_FAST"),
            f"{setting} does not go with HAPAX_FAST=on: records that may wait take the path in "
            "Python; set HAPAX_FAST=auto",
        )
    others = dict.fromkeys(settings.input.topics, "HAPAX_INPUT__TOPICS")
    others[settings.output.topic] = "HAPAX_OUTPUT__TOPIC"
    if settings.dead_letter.topic:
        others[settings.dead_letter.topic] = "HAPAX_DEAD_LETTER__TOPIC"
    if topic in others:
        yield Problem(
            (_TOPIC, others[topic]),
            f"{_TOPIC}={topic} is also in {others[topic]}: records that wait need a topic of "
            "their own; choose another one",
        )


def _by_key(settings: Settings) -> Iterator[Problem]:
    """Yield what does not go with records that wait in the order of their key."""
    setting = f"{_ORDER}=key"
    if settings.retry_topic is None:
        yield Problem(
            (_ORDER,),
            f"{setting} has no effect without later tries: set {_TOPIC} or {_LATER}, or remove it",
        )
    if settings.group.protocol != "consumer":
        yield Problem(
            (_ORDER, _GROUP),
            f"{setting} needs {_GROUP}=consumer, which is {settings.group.protocol}: partitions of "
            "the same number must go to the same member; set it, and "
            "HAPAX_GROUP__MEMBERSHIP=dynamic",
        )
    if settings.guarantee != "exactly_once":
        yield Problem(
            (_ORDER, _GUARANTEE),
            f"{setting} needs {_GUARANTEE}=exactly_once, which is {settings.guarantee}: what waits "
            "and what was read must be committed together; set it, or remove the order",
        )
    if settings.call.order == "none":
        yield Problem(
            (_ORDER, _CALLS),
            f"{setting} does not go with {_CALLS}=none: the second of two records of a key may be "
            "called before the first has asked to wait; set it to key, or remove the order",
        )
