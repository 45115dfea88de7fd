"""``hapax pause`` and ``hapax resume`` on real workers."""

import json
from typing import Any

from tests.kit.at_work import await_told
from tests.kit.night import Desk
from tests.kit.pipeline_under_test import metric
from tests.kit.probes import ask, free_port, ready
from tests.kit.routes import a_route
from tests.kit.topics import Given
from tests.kit.waiting import await_

route = a_route(partitions=2, GROUP__MEMBERSHIP="dynamic")


def status(port: int) -> Any:
    return json.loads(ask(port, "/status.json")[1])


def test_a_paused_worker_stays_a_member_takes_nothing_of_what_a_rebalance_brings_and_resumes(route):
    port = free_port()
    worker = route.worker("w-0", TELEMETRY__PORT=str(port))
    other = route.worker("w-1")
    route.write(*(Given(b"first", partition=number) for number in (0, 1)))
    route.await_outputs(2)
    await_told(worker, "service_ready")  # the other one may have written both
    await_(
        lambda: len(status(port)["partitions"]) == 1 and bool(other.lines("partitions_assigned")),
        60,
        other.text,
    )
    desk = Desk(route, TELEMETRY__PORT=str(port))
    told = desk.ask("pause")
    assert (told["instance"], told["state"], told["paused_by_operator"]) == ("w-0", "paused", True)
    assert ask(port, "/readyz")[0] == 503
    assert ask(port, "/livez")[0] == 200
    assert metric(ask(port, "/metrics")[1], "hapax_paused") == 1

    assert other.terminate() == 0
    await_(lambda: len(status(port)["partitions"]) == 2, 60, worker.text)
    route.write(*(Given(b"held", partition=number) for number in (0, 1)))
    await_(lambda: sum(one["lag"] or 0 for one in status(port)["partitions"]) == 2, 60, worker.text)
    assert len(route.outputs()) == 2
    assert worker.lines("partitions_lost") == []

    assert desk.ask("resume")["paused_by_operator"] is False
    route.await_outputs(4)
    route.await_lag_0()
    assert ask(port, "/readyz")[0] == 200
    assert metric(ask(port, "/metrics")[1], "hapax_paused") == 0


def test_a_paused_worker_drains_and_its_restart_knows_of_no_pause(route):
    port = free_port()
    worker = route.worker("w-0", TELEMETRY__PORT=str(port))
    await_(lambda: ready(port)[0], 60, worker.text)
    desk = Desk(route, TELEMETRY__PORT=str(port))
    desk.ask("pause")
    route.write(b"held")
    assert worker.terminate() == 0
    assert route.outputs() == []
    route.run_to_end()
    assert [record.value for record in route.outputs()] == [b"held"]
