"""What each kind of claim store gives to those who have only its address, without its client."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class TlsFiles(NamedTuple):
    """PEM files for a store that is reached by TLS.

    ca_file            authorities that it must be signed by; None: those of the system
    certificate_file   the worker's certificate, for a server that asks for one
    key_file           its key; None: it is in the same file
    key_password       of the key, or what returns it for each connection
    """

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | Callable[[], str] | None = None


class StoreOptions(NamedTuple):
    """How a store is opened.

    app            names the claims; letters, digits, dot, dash and underscore
    ttl_ms         how long an id is remembered at least
    on_emptied     called when claims that were there before are gone, before ``claim`` returns
    on_clock_jump  called with the seconds by which the store's clock went ahead of the worker's
    on_look        called by an answered ping: why claims may be deleted, or empty; keys deleted
    on_volatile    called as on_look: why a restart would forget claims, or empty
    cluster_id     Kafka's id of the cluster that offsets belong to; None: not compared
    current        returns the address as it is now: of its login, which may change
    """

    app: str
    ttl_ms: int
    on_emptied: Callable[[], None] | None = None
    on_clock_jump: Callable[[float], None] | None = None
    on_look: Callable[[str, int], None] | None = None
    on_volatile: Callable[[str], None] | None = None
    cluster_id: str | None = None
    tls: TlsFiles = TlsFiles()
    current: Callable[[], str] | None = None
    connect_timeout_s: float = 1.0
    answer_timeout_s: float = 2.0


class Transport(NamedTuple):
    """The way to a store, as its address describes it.

    places      host and port of every server that it names; none: within this machine, by a socket
    encrypted   whether it is reached by TLS
    unverified  options of the address that switch verification off, as ``name=value``
    """

    places: tuple[tuple[str, int], ...] = ()
    encrypted: bool = False
    unverified: tuple[str, ...] = ()


class StoreRights(NamedTuple):
    """The least rights of a pipeline's user, and where they are written."""

    where: str
    line: str
