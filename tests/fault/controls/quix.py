"""Quix Streams with its exactly-once guarantee. Runs in an environment of its own."""

from typing import Any

from quixstreams import Application, message_context
from quixstreams.models import BytesSerializer

from tests.fault import rules
from tests.fault.controls.contract import Contract, Effect, effects

COMMIT_INTERVAL_S = 1.0
"""Its default of 5 s would only make each abort larger."""


class ValueOf(BytesSerializer):  # type: ignore[misc]
    """An effect goes out as its value."""

    def __call__(self, value: Effect, *arguments: Any, **named: Any) -> bytes:
        return value.value


def run(ours: Contract) -> None:
    """Work until SIGTERM, which the application listens for."""
    application = Application(
        ours.bootstrap,
        consumer_group=ours.app,
        processing_guarantee="exactly-once",
        commit_interval=COMMIT_INTERVAL_S,
        auto_offset_reset="earliest",
        auto_create_topics=False,
        consumer_extra_config={
            "session.timeout.ms": ours.session_ms,
            "client.id": ours.name,
            **ours.properties,
        },
        producer_extra_config={"client.id": ours.name, **ours.properties},
        consumer_poll_timeout=0.2,
        loglevel="WARNING",
    )
    source = application.topic(ours.source, value_deserializer="bytes", key_deserializer="bytes")
    targets = {
        name: application.topic(name, value_serializer=ValueOf(), key_serializer="bytes")
        for name in (ours.target, rules.second_topic(ours.source), ours.dead)
    }
    made = application.dataframe(source).apply(
        lambda value, _key, _time, headers: _effects(ours, value, headers),
        expand=True,
        metadata=True,
    )
    made = made.set_headers(lambda effect, *_: effect.headers)
    made.to_topic(lambda effect, *_: targets[effect.topic])
    application.run()


def _effects(ours: Contract, value: bytes, headers: Any) -> list[Effect]:
    here = message_context()
    return effects(ours, (here.topic, here.partition, here.offset), value, headers or ())
