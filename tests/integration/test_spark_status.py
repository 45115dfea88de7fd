"""What the status page of a real driver says of Spark, and where it leads."""

import json
from http import HTTPStatus
from typing import Any

from tests.kit.at_work import at_work
from tests.kit.pipeline_under_test import PipelineUnderTest, metric
from tests.kit.probes import ask, free_port
from tests.kit.spark_process import SparkProcess
from tests.kit.waiting import await_

PROPERTIES = {"spark.driver.memory": "512m", "spark.ui.enabled": "true", "spark.ui.port": "0"}
RECORDS = 20_000


def test_a_driver_shows_executors_lanes_and_the_way_to_sparks_own_pages(sandbox, tmp_path):
    port = free_port()
    route = PipelineUnderTest(
        sandbox,
        tmp_path,
        partitions=3,
        kind=SparkProcess,
        TELEMETRY__PORT=str(port),
        SPARK__PROPERTIES=json.dumps(PROPERTIES),
    )
    route.create()
    route.write(*(b"%d" % number for number in range(RECORDS)))
    driver = route.worker("s-0")
    try:
        at_work(driver, 1)
        route.await_lag_0()

        def spark() -> dict[str, Any]:
            return dict(json.loads(ask(port, "/status.json")[1])["spark"])

        def idle() -> bool:
            return all(lane["last_range"] and not lane["range"] for lane in spark()["lanes"])

        await_(idle, 30, driver.text)
        told = spark()
        (executor,) = told["executors"]
        assert (executor["name"], executor["cores"]) == ("driver", 2)
        assert not told["waits_for_executors"]
        assert len(told["lanes"]) == 2
        assert {lane["last_range"]["outcome"] for lane in told["lanes"]} == {"done"}
        places = [one for lane in told["lanes"] for one in lane["partitions"]]
        assert {one["partition"]: one["position"] for one in places} == route.committed()
        exposition = ask(port, "/metrics")[1]
        assert metric(exposition, "hapax_executors") == 1
        assert metric(exposition, "hapax_ranges_in_flight") == 0
        page = ask(port, "/")[1]
        assert f'<a href="{told["ui"]}">' in page
        status, _ = ask(int(told["ui"].rpartition(":")[2]), "/jobs/")
        assert status == HTTPStatus.OK
        assert driver.terminate(60) == 0
    finally:
        route.close()
