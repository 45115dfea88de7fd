"""What the machine's Redis must be built with, or a skip that says so."""

import pytest

from hapax.sandbox import SandboxError, machine


def need() -> None:
    """Skip what needs one."""
    try:
        machine.redis_server(tls=True)
    except SandboxError:
        pytest.skip("this Redis was built without TLS")
