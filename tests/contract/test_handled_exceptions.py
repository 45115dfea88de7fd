"""What the client does with an exception that is handled while one of its calls fails."""

import gc
import weakref

from confluent_kafka import KafkaException, Producer


class Handled(Exception):  # noqa: N818 - nothing is wrong
    """What is handled."""


def fail(producer: Producer) -> None:
    try:
        producer.list_topics(timeout=0.01)
    except KafkaException:
        return
    raise AssertionError("there is no broker")


def outlives(*, inside: bool) -> bool:
    """Let a call fail in a handler, or after it; return whether the exception is still there."""
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})

    def handle() -> weakref.ref[Handled]:
        handled = Handled()
        known = weakref.ref(handled)
        try:
            raise handled
        except Handled:
            if inside:
                fail(producer)
        if not inside:
            fail(producer)
        return known

    known = handle()
    gc.collect()
    return known() is not None


def test_after_a_handler_nothing_is_kept():
    assert not outlives(inside=False)


def test_control_the_client_keeps_what_is_handled_when_its_call_fails():
    """When this fails the client has been cured, and its calls may be made in handlers again."""
    assert outlives(inside=True)
