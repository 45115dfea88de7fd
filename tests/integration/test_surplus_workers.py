"""More workers than partitions: the one without any, in each protocol of the group."""

import pytest

from tests.kit.probes import free_port, ready
from tests.kit.routes import a_route
from tests.kit.topics import Given
from tests.kit.waiting import await_

route = a_route(GROUP__MEMBERSHIP="dynamic")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_worker_without_a_partition_is_ready_and_takes_over(route, protocol):
    ports = [free_port(), free_port()]
    first = route.worker("w-0", GROUP__PROTOCOL=protocol, TELEMETRY__PORT=str(ports[0]))
    await_(lambda: ready(ports[0])[0], 60, first.text)
    surplus = route.worker("w-1", GROUP__PROTOCOL=protocol, TELEMETRY__PORT=str(ports[1]))
    await_(lambda: ready(ports[1])[0], 60, surplus.text)
    assert first.terminate() == 0
    route.write(Given(b"after"))
    route.await_outputs(1)
    assert ready(ports[1]) == (True, [])
