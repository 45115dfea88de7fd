"""Clients that are kept for the next who asks: to make one costs more than what it is asked."""

import atexit
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

Client = TypeVar("Client", Producer, Consumer, AdminClient)
QUIET: Mapping[str, Any] = {
    "log_level": 0,
    "metadata.recovery.strategy": "none",
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 200,
}
"""Of every client: dead brokers are normal, and one that is back is met at once."""
WRITER: Mapping[str, Any] = {
    "partitioner": "murmur2_random",
    "enable.idempotence": True,
    "linger.ms": 0,
    "retry.backoff.ms": 5,
}
_READER: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 5,  # behind the last record may be markers: then an answer tells the end
    "fetch.queue.backoff.ms": 10,
    "auto.offset.reset": "error",
}
_IDLE_MAX = 8


class _Held(NamedTuple):
    key: object
    client: Any
    errors: list[KafkaError]


_idle: list[_Held] = []
_lock = Lock()


def administrator(bootstrap_servers: str) -> AbstractContextManager[AdminClient]:
    return _kept(AdminClient, {"bootstrap.servers": bootstrap_servers})


def reader(
    bootstrap_servers: str, isolation: str, group: str = "reader"
) -> AbstractContextManager[Consumer]:
    more = {"bootstrap.servers": bootstrap_servers, "isolation.level": isolation, "group.id": group}
    return _kept(Consumer, {**_READER, **more})


def writer(bootstrap_servers: str) -> AbstractContextManager[Producer]:
    return _kept(Producer, {**WRITER, "bootstrap.servers": bootstrap_servers}, connect_s=60.0)


@contextmanager
def _kept(
    kind: type[Client], properties: Mapping[str, Any], connect_s: float = 10.0
) -> Iterator[Client]:
    """Give a client to the block alone; the next one with the same properties gets it again.

    One that met a dead broker, or whose block raised, is closed: it may wait in vain.
    """
    key = kind, tuple(sorted(properties.items()))
    held = _taken(key) or _Held(key, *_made(kind, properties, connect_s))
    try:
        yield held.client
    except BaseException:
        _close(held)
        raise
    with _lock:
        _idle.append(held)
        surplus = [_idle.pop(0) for _ in _idle[_IDLE_MAX:]]
    for each in surplus:
        _close(each)


def _made(
    kind: type[Any], properties: Mapping[str, Any], connect_s: float
) -> tuple[Any, list[KafkaError]]:
    errors: list[KafkaError] = []
    client = kind({**QUIET, **properties, "error_cb": errors.append})
    # Connected, it finds coordinators and gets its id at once; otherwise a timer of 500 ms runs.
    client.list_topics(timeout=connect_s)
    return client, errors


def _taken(key: object) -> _Held | None:
    """Return one that is idle and has met no dead broker."""
    while True:
        with _lock:
            at = next((at for at, each in enumerate(_idle) if each.key == key), None)
            if at is None:
                return None
            found = _idle.pop(at)
        found.client.poll(0)
        if not found.errors:
            return found
        _close(found)


def _close(held: _Held) -> None:
    if isinstance(held.client, Consumer):
        held.client.close()


@atexit.register
def close_all() -> None:
    """Keep none: their sequence numbers are unknown to a leader that has lost records."""
    while _idle:
        _close(_idle.pop())
