"""What every answer of the store says beside the claims: which store, whose, and at what time.

Called by both schemes of claims/redis.py.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from hapax.core.errors import OtherClusterError, other_cluster

if TYPE_CHECKING:
    from hapax.claims.kind import StoreOptions
    from hapax.claims.redis_clock import StoreClock


class Canary:
    """The epoch, the cluster and the clock, as the last answer had them.

    fresh       whether the first answer found no claims of this app
    next_epoch  what a store without an epoch is to begin
    """

    def __init__(self, options: StoreOptions, clock: StoreClock) -> None:
        """Know nothing yet."""
        self.app = options.app
        self.cluster_id = options.cluster_id
        self.fresh = False
        self.next_epoch = secrets.token_hex(4).encode()
        self.clock = clock
        self._epoch: bytes | None = None
        self._on_emptied = options.on_emptied
        self._on_clock_jump = options.on_clock_jump

    def check_cluster(self, known: bytes) -> None:
        """Raise OtherClusterError when the claims are of another Kafka cluster than ours."""
        here = self.cluster_id or ""
        if here and known and known != here.encode():
            raise OtherClusterError(
                other_cluster(f"the claims of HAPAX_APP={self.app}", known.decode(), here)
            )

    def notice(self, epoch: bytes) -> None:
        """Take note of the epoch; call ``on_emptied`` when it is another than before."""
        before, self._epoch = self._epoch, epoch
        # Ours also when an earlier call began it and its answer was lost.
        begun = epoch == self.next_epoch
        if begun:
            self.next_epoch = secrets.token_hex(4).encode()
        if before is None:
            self.fresh = begun
        elif before != epoch and self._on_emptied is not None:
            self._on_emptied()

    def notice_time(self, asked_s: float, redis_ms: int) -> None:
        """Take note of Redis' time; ``asked_s``: ours when the call began."""
        jump_s = self.clock.jump_s(asked_s, redis_ms)
        if jump_s and self._on_clock_jump is not None:
            self._on_clock_jump(jump_s)
