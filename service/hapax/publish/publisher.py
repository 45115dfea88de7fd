"""``Publisher``: a spool in front of Kafka, for any process that has records to publish."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack

import msgspec

from hapax.core.errors import ConfigurationError, StopError
from hapax.core.records import Message
from hapax.processing.identity import id_source
from hapax.publish.drainer import Drainer, PublishCall, Receipt
from hapax.publish.stored import Acceptance, RecordRefusedError, stored, with_id
from hapax.settings import load_settings
from hapax.spool.folder import Folder, SpoolFullError
from hapax.spool.group_commit import DISK_MIN_BYTES, GroupCommit
from hapax.spool.spool import FIRST, SpoolStore
from hapax.telemetry.metrics import SpoolMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from hapax.settings import Settings

MARKER_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 30.0
_LOOK_S, _FULL_REST_S = 0.1, 0.05
_REST = {"HAPAX_INPUT__TOPICS": "_", "HAPAX_OUTPUT__TOPIC": "__"}
"""What a pipeline needs and a publisher has no use for."""


def publish_settings(environ: Mapping[str, str]) -> Settings:
    """Return the settings; raise ConfigurationError with one sentence for each problem."""
    return load_settings(_REST | dict(environ))


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
    skip_at             sequences of records that brokers refuse: left out for good
    """

    disk_max_bytes: int
    memory_max_records: int
    on_full: Literal["block", "error"]
    timeout_s: float
    linger_s: float
    adopt: bool
    resume_at: int | None
    skip_at: int | Sequence[int]


class _Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    disk_max_bytes: int = 1 << 30
    memory_max_records: int = 100_000
    on_full: Literal["block", "error"] = "block"
    timeout_s: float = 30.0
    linger_s: float = 0.0
    adopt: bool = False
    resume_at: int | None = None
    skip_at: int | tuple[int, ...] = ()

    @classmethod
    def of(cls, given: Any) -> Self:
        """Return them; raise ConfigurationError for a value of another kind."""
        try:
            options = msgspec.convert(given, cls, strict=True)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"Publisher: {error}") from error
        if options.disk_max_bytes < DISK_MIN_BYTES:
            problem = f"disk_max_bytes={options.disk_max_bytes}: at least {DISK_MIN_BYTES:,}"
            raise ConfigurationError(f"Publisher: {problem}")
        return options

    @property
    def full_timeout_s(self) -> float:
        return self.timeout_s if self.on_full == "block" else 0.0


class Publisher:
    """Accepts records onto a disk, and publishes them once, in order, whatever dies.

    Any thread may call. ``state`` is that of the publishing side: starting, publishing, waiting
    (for brokers; ``reason`` says why), stopped (``problem`` says why).
    """

    def __init__(
        self,
        spool: str | Path,
        settings: Settings | None = None,
        **options: Unpack[PublisherOptions],
    ) -> None:
        """Open the spool's folder, or make it; compare it with Kafka where that answers.

        spool     a folder on a disk that survives the machine's end, for this alone
        settings  of app and Kafka; None: from the environment
        options   see PublisherOptions

        Raises SpoolOwnedError, SpoolMovedError, SpoolDamagedError, SpoolDisagreesError,
        ConfigurationError, OtherClusterError: docs/publish.md has what to do about each. A Kafka
        that does not answer is no error: records are accepted, and published when it is back.
        """
        given = _Options.of(options)
        settings = settings or publish_settings(os.environ)
        names = [source.header for source in map(id_source, settings.dedup.id)]
        self._id_header = next((name for name in names if name), "message-id")
        self._acceptance = Acceptance(settings, self._id_header)
        self._spool = SpoolStore(
            Folder(spool), settings.app, disk_max_bytes=given.disk_max_bytes, adopt=given.adopt
        )
        skip_at = (given.skip_at,) if isinstance(given.skip_at, int) else given.skip_at
        if any(not FIRST <= each < self._spool.next for each in skip_at):
            numbers = f"{self._spool.first} to {self._spool.next - 1}"
            self._spool.close()
            raise ConfigurationError(f"skip_at={given.skip_at}: the spool has records {numbers}")
        self._drained = threading.Condition()
        self._drainer = Drainer(
            self._spool,
            settings,
            id_header=self._id_header,
            linger_s=given.linger_s,
            resume_at=given.resume_at,
            skip_at=skip_at,
            drained=self._look,
        )
        self._gauges = _Gauges(self._spool, self._drainer, lambda: float(self._commit.full))
        self._commit = GroupCommit(
            self._spool,
            disk_max_bytes=given.disk_max_bytes,
            memory_max_records=given.memory_max_records,
            full_timeout_s=given.full_timeout_s,
            told=self._accepted,
        )
        self._on_full_s = given.full_timeout_s
        self._closed = False
        self._drainer.start()
        self._drainer.checked.wait(MARKER_TIMEOUT_S)
        if self._drainer.problem is not None:
            self.close(timeout_s=0)
            raise self._drainer.problem
        if self._drainer.state == "publishing" and self._spool.meta.topic:
            with suppress(RecordRefusedError):  # it is refused when it comes
                self._acceptance.ask(self._spool.meta.topic)

    # -- accepting ------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        message_id: str | bytes | None = None,
        callback: Callable[[Receipt], None] | None = None,
    ) -> Receipt:
        """Accept one record; return when it is on disk.

        timestamp_ms  of the record; None: now
        message_id    what its id header carries; None: ``<spool>/<sequence>``
        callback      called with the receipt, from another thread, when it is in Kafka
        Raises SpoolFullError or RecordRefusedError: it was not accepted. Raises SpoolFailedError:
        it may be; or what has stopped the publisher.
        """
        named = with_id(headers, self._id_header, message_id)
        message = Message(topic, value, key, -1, timestamp_ms, named)
        return self.publish_many([message], callback=callback)[0]

    def publish_many(
        self,
        messages: Iterable[Message],
        *,
        position: bytes = b"",
        callback: Callable[[Receipt], None] | None = None,
    ) -> list[Receipt]:
        """Accept records together: after a crash all of them are kept, or none.

        position  where the caller's source continues after them, kept with them; empty: as it was
        Raises as ``publish``.
        """
        call, accepted = self._submit([*messages], callback, position=position)
        accepted.result()
        return [Receipt(call, index) for index in range(len(call.ids))]

    async def publish_async(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        message_id: str | bytes | None = None,
        callback: Callable[[Receipt], None] | None = None,
    ) -> Receipt:
        """Accept one record as ``publish`` does, without holding up the event loop."""
        named = with_id(headers, self._id_header, message_id)
        message = Message(topic, value, key, -1, timestamp_ms, named)
        if not self._spool.forked and not self._acceptance.knows(topic):
            await asyncio.to_thread(self._check, [message])
        until_s = time.monotonic() + self._on_full_s
        while True:
            try:
                call, accepted = self._submit([message], callback, timeout_s=0.0)
            except SpoolFullError:
                if time.monotonic() >= until_s:
                    raise
                await asyncio.sleep(_FULL_REST_S)
            else:
                await asyncio.wrap_future(accepted)
                return Receipt(call, 0)

    def _submit(
        self,
        messages: Sequence[Message],
        callback: Callable[[Receipt], None] | None,
        *,
        position: bytes = b"",
        timeout_s: float | None = None,
    ) -> tuple[PublishCall, Future[None]]:
        if self._spool.failed is not None:
            raise self._spool.failed
        if self._drainer.problem is not None:
            raise self._drainer.problem
        self._check(messages)
        if type(position) is not bytes:
            raise RecordRefusedError(f"position must be bytes, not {type(position).__name__}")
        now_ms = time.time_ns() // 1_000_000
        records = [stored(message, now_ms) for message in messages]
        own = self._id_header
        ids = [next((one[1] for one in each.headers if one[0] == own), None) for each in messages]
        call = PublishCall(self._spool.meta.id, ids, callback)

        def remember(first: int) -> None:
            call.first = first
            if ids:
                self._drainer.receipts.add(call)

        return call, self._commit.submit(records, remember, position=position, timeout_s=timeout_s)

    def _check(self, messages: Sequence[Message]) -> None:
        self._acceptance.check(messages, away=self._drainer.state == "waiting")

    # -- looking --------------------------------------------------------------------------

    @property
    def position(self) -> bytes:
        """What was stored with the newest accepted record that had any; empty: nothing ever."""
        return self._spool.meta.position

    @property
    def spool_id(self) -> str:
        """The UUID of the spool, the first part of the ids that it gives."""
        return self._spool.meta.id

    @property
    def waiting(self) -> int:
        """How many accepted records are not known to be in Kafka."""
        return self._gauges.waiting

    @property
    def skipped(self) -> int:
        """Records that this process has left out for good."""
        return self._drainer.skipped

    @property
    def metrics(self) -> Any:
        """A collector for a registry of prometheus_client: ``REGISTRY.register(…)``."""
        return self._gauges.table.registry

    @property
    def state(self) -> str:
        """See the class."""
        return "full" if self._commit.full else self._drainer.state

    @property
    def reason(self) -> str:
        """Why it waits or has stopped."""
        return self._drainer.reason

    @property
    def problem(self) -> StopError | None:
        """What has stopped it; open it again when that is put right."""
        return self._drainer.problem or self._commit.problem

    # -- ending ---------------------------------------------------------------------------

    def flush(self, timeout_s: float) -> bool:
        """Wait until all accepted records are in Kafka; return whether they are.

        Raises what has stopped the publisher.
        """
        if self._spool.forked and self._spool.failed is not None:
            raise self._spool.failed  # a lock that was held at the fork stays so
        until_s = time.monotonic() + timeout_s
        with self._drained:
            while self.waiting and self._drainer.problem is None:
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._drained.wait(min(left_s, _LOOK_S))
            self._gauges.publish()  # the drainer has said so, and is about to call
        if self._drainer.problem is not None:
            raise self._drainer.problem
        return True

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Accept nothing more, publish what it holds for so long, and let go of the folder.

        What is left stays in the spool: the next process with it publishes it.
        """
        if self._closed or self._spool.forked:
            return
        self._closed = True
        self._commit.close()
        until_s = time.monotonic() + timeout_s
        try:
            with suppress(StopError):  # visible in ``problem``; the records are safe
                self.flush(timeout_s)
        finally:
            self._drainer.end(max(_LOOK_S, until_s - time.monotonic()))
            closed = StopError("the publisher was closed before: the record is safe in the spool")
            self._drainer.receipts.end(closed, max(_LOOK_S, until_s - time.monotonic()))
            self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _accepted(self, seconds: float, records: int) -> None:
        self._gauges.accept(seconds, records)
        self._drainer.wake()

    def _look(self) -> None:
        self._commit.made_room()
        with self._drained:
            self._gauges.publish()
            self._drained.notify_all()


class _Gauges:
    def __init__(self, spool: SpoolStore, drainer: Drainer, full: Callable[[], float]) -> None:
        self.table = SpoolMetrics()
        self._spool = spool
        self._drainer = drainer
        self._published = self._skipped = 0
        self._idle_s = time.monotonic()
        self.table.spool_records_waiting.of().set_function(lambda: self.waiting)
        self.table.spool_bytes.of().set_function(lambda: spool.size_bytes)
        self.table.spool_waiting_seconds.of().set_function(
            lambda: time.monotonic() - self._idle_s if self.waiting else 0.0
        )
        self.table.spool_full.of().set_function(full)

    @property
    def waiting(self) -> int:
        return self._spool.next - max(self._drainer.next, self._spool.first)

    def accept(self, seconds: float, records: int) -> None:
        """Take note of a round of the spool."""
        self.table.spool_sync_seconds.of().observe(seconds)
        self.table.spool_records_accepted.of().inc(records)
        if records and self.waiting <= records:
            self._idle_s = time.monotonic()

    def publish(self) -> None:
        """Take note of how far the drainer has come."""
        reached, self._idle_s = self._drainer.next, time.monotonic()
        skipped, self._skipped = self._drainer.skipped - self._skipped, self._drainer.skipped
        self.table.spool_records_skipped.of().inc(skipped)
        if self._published:
            self.table.spool_records_published.of().inc(reached - self._published - skipped)
        self._published = reached
