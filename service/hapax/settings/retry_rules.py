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
_DELAY: Final = "HAPAX_RETRY__DELAY"
_DELAY_MAX: Final = "HAPAX_RETRY__DELAY_MAX"


def retry_problems(settings: Settings) -> Iterator[Problem]:
    """Yield every rule of later tries that these settings break."""
    retry, topic = settings.retry, settings.retry_topic
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
