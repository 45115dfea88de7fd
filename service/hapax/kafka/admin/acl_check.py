"""Whether our user may use a transactional id, tried out without using it.

A producer asks for its id with a timeout that no broker grants. The broker looks at rights first,
then at the timeout, and only then at the id: so it says either "not allowed" or "timeout too
long", and whoever owns the id is not fenced (Kafka: KafkaApis.handleInitProducerIdRequest,
TransactionCoordinator.handleInitProducerId).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from hapax.kafka.errors import FORBIDDEN, describe, transactional_error
from hapax.kafka.properties import build

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_MS = 2_147_000_000
"""Nearly the longest that a request can say (the client adds a little to it); brokers allow 15
minutes unless configured otherwise."""
ANSWER_TIMEOUT_S = 3.0


class UntoldError(Exception):
    """The broker did not say."""


class _Silent:
    """Takes the client's lines: that its own trial is refused is no news for anybody's terminal.

    ``log_level`` does not keep them back: a refused registration is fatal to a producer, and the
    client writes such lines whatever the level.
    """

    def log(self, *_line: object) -> None:
        """Drop a line."""


def check_transactional_id_acl(properties: Mapping[str, Any], transactional_id: str) -> str:
    """Return why we may not use an id; empty when we may. Raises UntoldError.

    Never call it where ``transaction.max.timeout.ms`` may be as long as TIMEOUT_MS: there the
    producer would get the id, and fence its owner.
    """
    asked = {
        **properties,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": TIMEOUT_MS,
        "log_level": 0,
    }
    producer = build(Producer, asked, _Silent())
    try:
        # Connected, it finds the coordinator at once; otherwise a timer of 500 ms runs.
        producer.list_topics(timeout=ANSWER_TIMEOUT_S)
        producer.init_transactions(ANSWER_TIMEOUT_S)
    except KafkaException as exception:
        error = transactional_error(exception)
        if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return ""
        if error.code() in FORBIDDEN:
            return describe(error)
        raise UntoldError(describe(error)) from exception
    return ""
