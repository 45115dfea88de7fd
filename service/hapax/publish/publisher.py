"""``Publisher``: a spool in front of Kafka, for any process that has records to publish."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING, Literal, Self

from hapax.core.errors import StopError
from hapax.core.id_sources import id_source
from hapax.core.ports import Message
from hapax.publish.acceptance import Acceptance
from hapax.publish.drainer import Drainer
from hapax.publish.environment import publish_settings
from hapax.publish.receipts import Call, Receipt
from hapax.publish.stored import stored
from hapax.spool.errors import SpoolFullError
from hapax.spool.group_commit import Group, GroupCommit
from hapax.spool.spool import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from hapax.settings import Settings

DISK_MAX_BYTES = 1 << 30
MEMORY_MAX_RECORDS = 100_000
SEGMENT_BYTES_MAX, SEGMENT_PARTS = 64 << 20, 8
MARKER_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 30.0
_LOOK_S, _FULL_REST_S = 0.1, 0.05


class Publisher:
    """Accepts records onto a disk, and publishes them once, in order, whatever dies.

    Any thread may call. ``state`` is that of the publishing side: starting, publishing, waiting
    (for brokers; ``reason`` says why), stopped (``problem`` says why).
    """

    def __init__(
        self,
        spool: str | Path,
        settings: Settings | None = None,
        *,
        disk_max_bytes: int = DISK_MAX_BYTES,
        memory_max_records: int = MEMORY_MAX_RECORDS,
        on_full: Literal["block", "error"] = "block",
        timeout_s: float = 30.0,
        linger_s: float = 0.0,
        adopt: bool = False,
    ) -> None:
        """Open the spool's folder, or make it; compare it with Kafka where that answers.

        spool               a folder on a disk that survives the machine's end, for this alone
        settings            of app and Kafka; None: from the environment
        disk_max_bytes      most that the spool may take of its disk
        memory_max_records  most records that wait for the disk at once
        on_full             block: a call waits up to ``timeout_s`` for room; error: not at all
        linger_s            how long a transaction waits for more records
        adopt               take a folder that was moved, or restored in full

        Raises SpoolOwnedError, SpoolMovedError, SpoolDamagedError, SpoolDisagreesError,
        ConfigurationError, OtherClusterError: docs/publish.md has what to do about each. A Kafka
        that does not answer is no error: records are accepted, and published when it is back.
        """
        self._settings = settings or publish_settings(os.environ)
        names = [source.header for source in map(id_source, self._settings.dedup.id)]
        self._id_header = next((name for name in names if name), "message-id")
        self._timeout_s = timeout_s
        self._acceptance = Acceptance(self._settings)
        segment_bytes = max(1 << 16, min(SEGMENT_BYTES_MAX, disk_max_bytes // SEGMENT_PARTS))
        self._spool = opened(spool, self._settings.app, segment_bytes=segment_bytes, adopt=adopt)
        self._position = self._spool.log.position
        self._drained = threading.Condition()
        self._drainer = Drainer(
            self._spool,
            self._settings,
            id_header=self._id_header,
            linger_s=linger_s,
            drained=self._look,
        )
        self._commit = GroupCommit(
            self._spool.log,
            disk_max_bytes=disk_max_bytes,
            memory_max_records=memory_max_records,
            full_timeout_s=timeout_s if on_full == "block" else 0.0,
            told=lambda _seconds, _records: self._drainer.wake(),
        )
        self._on_full_s = self._timeout_s if on_full == "block" else 0.0
        self._closed = False
        self._commit.start()
        self._drainer.start()
        self._drainer.checked.wait(MARKER_TIMEOUT_S)
        if self._drainer.problem is not None:
            self.close(timeout_s=0)
            raise self._drainer.problem

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
        message = self._message(topic, value, key, headers, timestamp_ms, message_id)
        call, group = self._submit([message], b"", callback)
        group.wait()
        return Receipt(call, 0)

    def publish_many(
        self,
        messages: Iterable[Message],
        *,
        position: bytes = b"",
        callback: Callable[[Receipt], None] | None = None,
    ) -> list[Receipt]:
        """Accept records together: after a crash all of them are there, or none.

        position  where the caller's source goes on behind them, kept with them; empty: as it was
        Raises as ``publish``.
        """
        call, group = self._submit([*messages], position, callback)
        group.wait()
        return call.receipts()

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
        message = self._message(topic, value, key, headers, timestamp_ms, message_id)
        call, group = await self._submit_async(message, callback)
        loop, accepted = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            loop.call_soon_threadsafe(accepted.set)

        group.call_when_done(tell)
        await accepted.wait()
        group.wait()
        return Receipt(call, 0)

    async def _submit_async(
        self, message: Message, callback: Callable[[Receipt], None] | None
    ) -> tuple[Call, Group]:
        until_s = time.monotonic() + self._on_full_s
        while True:
            try:
                return self._submit([message], b"", callback, timeout_s=0.0)
            except SpoolFullError:
                if time.monotonic() >= until_s:
                    raise
            await asyncio.sleep(_FULL_REST_S)

    def _message(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Iterable[tuple[str, bytes | None]],
        timestamp_ms: int | None,
        message_id: str | bytes | None,
    ) -> Message:
        named = [*headers]
        if message_id is not None:
            data = message_id.encode() if isinstance(message_id, str) else message_id
            named = [one for one in named if one[0] != self._id_header]
            named.append((self._id_header, data))
        return Message(topic, value, key, -1, timestamp_ms or 0, named)

    def _submit(
        self,
        messages: Sequence[Message],
        position: bytes,
        callback: Callable[[Receipt], None] | None,
        timeout_s: float | None = None,
    ) -> tuple[Call, Group]:
        if self._drainer.problem is not None:
            raise self._drainer.problem
        self._acceptance.check(messages, away=self._drainer.state == "waiting")
        now_ms = time.time_ns() // 1_000_000
        records = [stored(message, now_ms) for message in messages]
        ids = [_id_of(message, self._id_header) for message in messages]
        call = Call(self._spool.id.id, ids, callback)

        def accepted(group: Group, index: int) -> None:
            if group.error is None:
                call.first = group.first + index
                self._position = group.position or self._position
                self._drainer.receipts.add(call)

        return call, self._commit.submit(records, position, accepted, timeout_s=timeout_s)

    # -- looking --------------------------------------------------------------------------

    @property
    def position(self) -> bytes:
        """What was stored with the newest accepted record that had any; empty: nothing ever."""
        return self._position

    @property
    def spool_id(self) -> str:
        """The UUID of the spool, the first part of the ids that it gives."""
        return self._spool.id.id

    @property
    def waiting(self) -> int:
        """How many accepted records are not known to be in Kafka."""
        log = self._spool.log
        return log.certified_next - max(self._drainer.next, log.first)

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
        return self._drainer.problem

    # -- ending ---------------------------------------------------------------------------

    def flush(self, timeout_s: float) -> bool:
        """Wait until all accepted records are in Kafka; return whether they are.

        Raises what has stopped the publisher.
        """
        until_s = time.monotonic() + timeout_s
        with self._drained:
            while self.waiting and self._drainer.problem is None:
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._drained.wait(min(left_s, _LOOK_S))
        if self._drainer.problem is not None:
            raise self._drainer.problem
        return True

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Accept nothing more, publish what is there for so long, and let go of the folder.

        What is left stays in the spool: the next process with it publishes it.
        """
        if self._closed:
            return
        self._closed = True
        self._commit.close()
        until_s = time.monotonic() + timeout_s
        try:
            self.flush(timeout_s)
        except StopError:
            pass  # visible in ``problem``; the records are safe
        finally:
            self._drainer.end(max(_LOOK_S, until_s - time.monotonic()))
            self._drainer.receipts.fail(
                StopError("the publisher was closed before: the record is safe in the spool")
            )
            self._spool.close()

    def __enter__(self) -> Self:
        """Return the publisher."""
        return self

    def __exit__(self, *_exception: object) -> None:
        """Close it."""
        self.close()

    def _look(self) -> None:
        self._commit.made_room()
        with self._drained:
            self._drained.notify_all()


def _id_of(message: Message, id_header: str) -> bytes | None:
    return next((value for name, value in message.headers if name == id_header), None)
