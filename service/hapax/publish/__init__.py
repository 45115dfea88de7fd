"""Publishing without loss: records are safe when they are on disk, and reach Kafka once, in order.

from hapax.publish import Publisher

with Publisher("/durable/orders-spool") as publisher:
    publisher.publish("orders", b"...", key=b"customer-7")

Settings come from the environment (HAPAX_APP and HAPAX_KAFKA__… are needed). docs/publish.md.
"""

import logging

from hapax.publish.drainer import Receipt
from hapax.publish.publisher import Publisher, PublisherOptions
from hapax.publish.stored import RecordRefusedError
from hapax.spool.folder import (
    SpoolDamagedError,
    SpoolDisagreesError,
    SpoolFailedError,
    SpoolFullError,
    SpoolMovedError,
    SpoolOwnedError,
)

__all__ = [
    "Publisher",
    "PublisherOptions",
    "Receipt",
    "RecordRefusedError",
    "SpoolDamagedError",
    "SpoolDisagreesError",
    "SpoolFailedError",
    "SpoolFullError",
    "SpoolMovedError",
    "SpoolOwnedError",
]

logging.getLogger("hapax.publish").addHandler(logging.NullHandler())
