"""Publishing without loss: records are safe when they are on disk, and reach Kafka once, in order.

    from hapax.publish import Publisher

    with Publisher("/durable/orders-spool") as publisher:
        publisher.publish("orders", b"...", key=b"customer-7")

Settings come from the environment (HAPAX_APP and HAPAX_KAFKA__… are needed). docs/publish.md.

publisher   the API, and its metrics
acceptance  what is refused at once
environment settings of a process that publishes and does nothing else
drainer     from the spool to Kafka, each record once, and the marker of how far that is
read_ahead  what is published next, decoded while a transaction commits
options     bounds and choices of a publisher
receipts    where each record went
stored      how a record lies in the spool
"""

import logging

from hapax.publish.acceptance import RecordRefusedError
from hapax.publish.options import PublisherOptions
from hapax.publish.publisher import Publisher
from hapax.publish.receipts import Receipt
from hapax.spool.errors import (
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
