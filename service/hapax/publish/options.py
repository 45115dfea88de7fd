"""What a publisher may be given in addition to its folder and its settings."""

from __future__ import annotations

from typing import Any, Literal, Self, TypedDict

import msgspec

from hapax.core.errors import ConfigurationError
from hapax.spool.group_commit import DISK_MIN_BYTES


class PublisherOptions(TypedDict, total=False):
    """Keywords of ``Publisher``.

    disk_max_bytes      most that the spool may take of its disk: 1 GiB
    memory_max_records  most records that wait for the disk at once: 100,000
    on_full             block (the default): a call waits up to ``timeout_s`` for room; error: not
                        at all
    timeout_s           30
    linger_s            how long a transaction waits for more records: 0
    adopt               take a folder that was moved, or restored in full
    resume_at           where the marker is gone: the first sequence that is not in Kafka
    """

    disk_max_bytes: int
    memory_max_records: int
    on_full: Literal["block", "error"]
    timeout_s: float
    linger_s: float
    adopt: bool
    resume_at: int | None


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same with their defaults."""

    disk_max_bytes: int = 1 << 30
    memory_max_records: int = 100_000
    on_full: Literal["block", "error"] = "block"
    timeout_s: float = 30.0
    linger_s: float = 0.0
    adopt: bool = False
    resume_at: int | None = None

    @classmethod
    def of(cls, given: Any) -> Self:
        """Return them; raise ConfigurationError for a value of another kind."""
        try:
            options = msgspec.convert(given, cls, strict=True)
        except msgspec.ValidationError as error:
            raise ConfigurationError([f"Publisher: {error}"]) from error
        if options.disk_max_bytes < DISK_MIN_BYTES:
            problem = f"disk_max_bytes={options.disk_max_bytes}: at least {DISK_MIN_BYTES:,}"
            raise ConfigurationError([f"Publisher: {problem}"])
        return options

    @property
    def full_timeout_s(self) -> float:
        return self.timeout_s if self.on_full == "block" else 0.0
