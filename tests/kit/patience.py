"""Questions to brokers that may just be away."""

from __future__ import annotations

from confluent_kafka import KafkaException
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

PATIENCE_S = 60.0

patient = retry(
    retry=retry_if_exception_type(KafkaException),
    wait=wait_fixed(0.1),
    stop=stop_after_delay(PATIENCE_S),
    reraise=True,
)
"""Asks anew, with whatever client the function makes for itself, until a broker answers.

For functions that only read. The client flags none of these errors as retriable: while brokers
die and come back it tells of connections, coordinators, leaders, and of a handle of its own that
was destroyed (``_DESTROY_BROKER``, of the broker whose disk was full).
"""
