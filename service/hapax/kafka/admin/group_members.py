"""The members of a consumer group, as its coordinator tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from hapax.kafka.group_state import admin_properties
from hapax.kafka.properties import APART, consumer_properties

if TYPE_CHECKING:
    from hapax.settings import Settings

ANSWER_TIMEOUT_S = 10.0


def members(settings: Settings) -> dict[str, str] | None:
    """Return the transactional ids of the group's members, each with its host; None: not told.

    They follow from the client ids. A member of another program keeps its client id.
    """
    properties: dict[str, Any] = {**admin_properties(consumer_properties(settings)), "log_level": 0}
    admin = AdminClient(properties)  # a name holds it: without one its answers never come
    answers = admin.describe_consumer_groups([settings.app], request_timeout=ANSWER_TIMEOUT_S)
    try:
        described = answers[settings.app].result(ANSWER_TIMEOUT_S)
    except KafkaException as error:
        # A group that nobody has joined yet has no members.
        return {} if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND else None
    except TimeoutError:
        return None
    ours = f"{settings.app}-"
    return {
        (
            f"{settings.app}{APART}{one.client_id.removeprefix(ours)}"
            if one.client_id.startswith(ours)
            else one.client_id
        ): one.host
        for one in described.members
    }
