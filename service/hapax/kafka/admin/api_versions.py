"""Which requests the brokers take, from the client's own lines.

The client asks every broker for its versions, and says what it heard only in its log
(``debug=feature``). A version tells the age of a broker that has no other way to say it.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from hapax.kafka.errors import describe

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_LINE = re.compile(r"(\S+): +ApiKey (\w+) \(\d+\) Versions \d+\.\.(\d+)")
_LINES_MAX, _ERRORS_MAX = 100_000, 20
_NOISE = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE")
_HINTS = ("security.protocol", "SSL", "SASL")
"""Words by which an error of the transport says more than that nobody answers."""


class ApiVersionsLog(logging.Handler):
    """What a client says while it connects: versions, and why it cannot.

    ``logger`` and ``error`` are for the client. Both are called by its ``poll``.
    """

    def __init__(self) -> None:
        super().__init__()
        self._versions: dict[str, dict[str, int]] = {}
        self._lines = 0
        self.errors: list[str] = []
        # Of its own, not one of the process: nothing else hears it.
        self.logger = logging.Logger("hapax-doctor", logging.DEBUG)  # noqa: LOG001
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the versions of a broker."""
        self._lines += 1
        found = _LINE.search(record.getMessage()) if self._lines < _LINES_MAX else None
        if found is not None:
            broker, name, version = found.groups()
            self._versions.setdefault(broker, {})[name] = int(version)

    def error(self, error: KafkaError) -> None:
        """Keep an error that belongs to no call: a refused login, a broken TLS handshake."""
        text = describe(error)
        if text not in self.errors and len(self.errors) < _ERRORS_MAX:
            self.errors.append(text)

    @property
    def causes(self) -> list[str]:
        """The errors that say more than that nobody answers."""
        return [
            each
            for each in self.errors
            if not each.startswith(_NOISE) or any(hint in each for hint in _HINTS)
        ]

    @property
    def apis(self) -> dict[str, int]:
        """The highest version of each request that every broker takes which has answered."""
        names = {name for versions in self._versions.values() for name in versions}
        return {
            name: min(versions.get(name, -1) for versions in self._versions.values())
            for name in sorted(names)
        }
