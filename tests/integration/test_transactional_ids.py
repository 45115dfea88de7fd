"""Whose transactions are whose: pipelines whose names join alike."""

import pytest

from tests.kit.pipeline_under_test import PipelineUnderTest

ROUNDS = 5


@pytest.fixture
def routes(sandbox, tmp_path):
    made = [PipelineUnderTest(sandbox, tmp_path) for _ in range(2)]
    for route in made:
        route.create()
    yield made
    for route in made:
        route.close()


def test_two_pipelines_whose_app_and_instance_join_alike_never_fence_each_other(routes):
    app = routes[0].app
    workers = [
        routes[0].worker("eu-0", APP=app),
        routes[1].worker("0", APP=f"{app}-eu"),
    ]
    for count in range(1, ROUNDS + 1):
        for route in routes:
            route.write(b"%d" % count)
            route.await_outputs(count)
    assert [worker.terminate() for worker in workers] == [0, 0]
    rebuilt = [line for worker in workers for line in worker.lines("producer_rebuilt")]
    assert rebuilt == []
