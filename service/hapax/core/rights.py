"""Rights that a pipeline needs, as values; hapax.operations.doctor.acls derives them."""

from __future__ import annotations

import msgspec


class Right(msgspec.Struct, frozen=True):
    """One grant in the words of Kafka's authorizer (KIP-11; prefixes: KIP-290).

    resource   TOPIC, GROUP, TRANSACTIONAL_ID or CLUSTER
    name       of the resource; the cluster's is ``kafka-cluster``
    operation  READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS or IDEMPOTENT_WRITE. READ and WRITE include
               DESCRIBE, which is therefore only named where it is the only one.
    reason     what it is needed for, a phrase
    pattern    LITERAL, or PREFIXED for all names that begin so
    optional   the service runs without it; ``reason`` names what does not work
    """

    resource: str
    name: str
    operation: str
    reason: str
    pattern: str = "LITERAL"
    optional: bool = False
