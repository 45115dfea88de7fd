"""Clients of librdkafka as hapax_fast knows them: from being built to leaving nothing behind."""

import gc
import os
import threading
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from msgspec import UNSET

from hapax.core.records import Output, Record
from hapax.kafka.native import UNCHANGED

fast = pytest.importorskip("hapax_fast", reason="the native part is optional")

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "plugin.library.paths": fast.PLUGIN, "log_level": 0}
GROUP = {**NOWHERE, "group.id": "nobody"}


@pytest.fixture(autouse=True)
def _nothing_is_left():
    fast.setup(Record, Output, UNSET, UNCHANGED)
    _forget_what_was_captured()
    gc.collect()
    before = fast.clients()
    yield
    gc.collect()
    _forget_what_was_captured()
    assert fast.clients() == before


def _forget_what_was_captured() -> None:
    """Take what this thread has captured, and drop it."""
    try:
        fast.captured()
    except RuntimeError:
        return


def test_a_consumer_that_ended_is_freed_with_all_that_was_open_in_it():
    before = fast.clients()
    consumer = Consumer(GROUP)
    intake = fast.Intake(fast.captured(), [("key", "", b"")])
    intake.route("topic", 0)
    assert fast.clients() == before + 1
    del consumer  # its destructor waits for ever for a queue that is open
    assert fast.clients() == before + 1, "the intake still refers to it"
    with pytest.raises(RuntimeError, match="the client has ended"):
        intake.take(1, 0)
    del intake
    assert fast.clients() == before


def test_a_client_lives_on_when_all_that_refers_to_it_is_gone():
    producer = Producer(NOWHERE)
    before = fast.clients()
    fast.captured()
    assert fast.clients() == before
    del producer
    assert fast.clients() == before - 1


def test_of_two_clients_that_were_built_the_younger_one_is_captured():
    first, second = Producer(NOWHERE), Producer(NOWHERE)
    client = fast.captured()
    with pytest.raises(RuntimeError, match="has built no client"):
        fast.captured()
    del second
    before = fast.clients()
    del client
    assert fast.clients() == before - 1
    del first


def test_a_client_that_cannot_be_built_is_not_captured_and_freed_with_the_thread():
    wrong = {**NOWHERE, "security.protocol": "ssl", "ssl.ca.location": "/nowhere.pem"}
    refused = []

    def build_in_vain() -> None:
        for _ in range(3):
            with pytest.raises(KafkaException):
                Producer(wrong)
        with pytest.raises(RuntimeError, match="has built no client"):
            fast.captured()
        refused.append(fast.clients())

    before = fast.clients()
    thread = threading.Thread(target=build_in_vain)
    thread.start()
    thread.join()
    assert refused == [before + 1], "only the last one waits for the end of the thread"


def _in_a_fork(refused: Any) -> str:
    """Return what a call raises in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            refused()
            text = "nothing"
        except RuntimeError as error:
            text = str(error)
        os.write(writing, text.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as told:
        return told.read()


def test_a_forked_child_cannot_use_a_client_of_its_parent():
    consumer = Consumer(GROUP)
    client = fast.captured()
    intake = fast.Intake(client, [])
    ours = "the client is of the process that was forked"
    assert _in_a_fork(lambda: intake.take(1, 0)) == ours
    assert _in_a_fork(lambda: intake.route("topic", 0)) == ours
    assert _in_a_fork(lambda: fast.Intake(client, [])) == ours
    assert _in_a_fork(intake.close) == "nothing"
    assert intake.take(1, 0) is None
    del consumer
