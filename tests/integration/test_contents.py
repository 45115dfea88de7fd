"""Whatever a record holds, first of its partition or amid others: it is a dead letter alone."""

from collections import Counter
from typing import Any

import pytest

from tests.kit.impossible import contents
from tests.kit.killers import supervise
from tests.kit.pipeline_under_test import header, source, values
from tests.kit.routes import routes_of
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given

BAD = contents()
ENGINES: dict[str, dict[str, Any]] = {
    "native path": {"FAST": "on"},
    "Python path": {"FAST": "off"},
    "coroutines": {"TRANSFORM": "tests.kit.impossible:order_later", "CALL__CONCURRENCY": "4"},
    "lists": {"TRANSFORM": "tests.kit.impossible:order_all"},
    "Spark": {"kind": SparkProcess},
}
route_of = routes_of(
    INPUT__FORMAT="json", TRANSFORM="tests.kit.impossible:order", CALL__TIMEOUT="1s"
)


@pytest.mark.row("T2")
@pytest.mark.parametrize(
    "engine",
    [
        "native path",
        *(pytest.param(name, marks=pytest.mark.long) for name in list(ENGINES)[1:-1]),
        "Spark",
    ],
)
def test_a_content_that_cannot_pass_is_a_dead_letter_at_offset_0_and_amid_others(route_of, engine):
    route = route_of(len(BAD), config={"target": {"max.message.bytes": "20000"}}, **ENGINES[engine])
    sound = [b'{"do": "pass %d"}' % number for number in range(2 * len(BAD))]
    for number, bad in enumerate(BAD):
        before, after = sound[2 * number : 2 * number + 2]
        route.write(*(Given(each, partition=number) for each in (bad, before, bad, after)))
    codes, _workers = supervise(route, starts_max=30, within_s=300)
    assert (codes == [0]) == (engine == "Spark"), "a driver survives what kills a worker"
    reasons = [(each.value, header(each, "hapax-error")) for each in route.dead()]
    assert Counter(value for value, _ in reasons) == dict.fromkeys(BAD, 2)
    assert {source(each) for each in route.dead()} == {0, 2}
    assert [each for each in reasons if BAD[each[0] or b""] not in each[1]] == []
    assert Counter(values(route.outputs())) == Counter(sound)
    assert route.committed() == dict.fromkeys(range(len(BAD)), 4)
