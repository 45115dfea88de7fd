"""Which transactions are open, by what their coordinators have written down."""

import struct
from collections.abc import Sequence
from itertools import chain

from tests.fault.checking import reading

LOG = "__transaction_state"
_STATUS_AT = 16
"""Behind version (2 bytes), producer id (8), epoch (2) and timeout (4)."""
STATUSES = {1: "ongoing", 2: "committing", 3: "aborting"}


def open_transactions(bootstrap: str, topics: Sequence[str], feeder: str) -> list[str]:
    """Return ids, with their states, of open transactions that touch any of ``topics``."""
    last: dict[str, str] = {}
    partitions = range(len(reading.ends(bootstrap, LOG)))
    for message in chain.from_iterable(
        reading.chunks(bootstrap, LOG, partitions, "read_uncommitted")
    ):
        name, value = _name(message.key() or b""), message.value()
        touches = value is not None and any(topic.encode() in value for topic in topics)
        status = STATUSES.get(value[_STATUS_AT]) if value is not None and touches else None
        if status is None:
            last.pop(name, None)
        else:
            last[name] = status
    return [f"{name}: {status}" for name, status in last.items() if name != feeder]


def _name(key: bytes) -> str:
    (length,) = struct.unpack_from(">h", key, 2)
    return key[4 : 4 + length].decode(errors="replace")
