"""What the machine's Redis must be built with, or a skip that says so."""

import pytest

from hapax.sandbox import SandboxError, machine


def is_there() -> bool:
    try:
        return machine.redis_server(tls=True) is not None
    except SandboxError:
        return False


def need() -> None:
    """Skip what needs one."""
    if not is_there():
        pytest.skip("this Redis was built without TLS")
