"""The rules as a transform: what ``HAPAX_TRANSFORM=tests.fault.business:split`` names.

There is a gate in it, which is open unless the environment names a folder of gates.
"""

import os
from collections.abc import Iterator

from hapax import Output, Record
from tests.fault import rules
from tests.fault.controls import gate

_WHO = f"{os.environ.get('HAPAX_INSTANCE', '')}/{os.getpid()}".encode()


def split(record: Record) -> Iterator[Output]:
    """Yield what the rules ask for; outputs say which process made them, but for plain events."""
    gate.pass_through(record.value or b"")
    second = rules.second_topic(record.topic)
    content = rules.decode(record.value or b"")
    who = () if content is not None and rules.is_plain(content.number) else (("who", _WHO),)
    for way, value in rules.results(record.value or b""):
        yield Output(value, topic=second if way else None, headers=who)
