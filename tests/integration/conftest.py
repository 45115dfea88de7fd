from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.kit.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.sandbox import Sandbox


class ProxiedBroker(NamedTuple):
    """One broker, and two ways to it."""

    direct: str
    proxied: str
    proxy: FaultProxy


@pytest.fixture
def proxied_broker(sandbox: Sandbox) -> Iterator[ProxiedBroker]:
    """The sandbox's broker behind a proxy that does no harm until a rule is added."""
    with FaultProxy.before(sandbox) as proxy:
        yield ProxiedBroker(sandbox.bootstrap_servers, proxy.bootstrap, proxy)
