"""Spark on encrypted ways, with the least rights: our clients in tasks, and Java's in the JVM."""

import pytest

from hapax.operations.doctor.acls import kafka_rights
from hapax.settings import load_settings
from tests.kit import topics
from tests.kit.guarded import tokens_of
from tests.kit.pipeline_process import environment, pipeline_process
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.proof import at_length
from tests.kit.secured import INSTANCE, SCRAM_PASSWORD, needed, way
from tests.kit.spark_process import SPARK, SparkProcess
from tests.kit.waiting import await_

WITHIN_S = 180.0
TEN = [b"%d" % number for number in range(10)]
WIDE = [b"%d" % number + bytes(300_000) for number in range(10)]
"""So many bytes that they are published in parts, by two tasks."""


@pytest.mark.long
def test_spark_on_records_does_its_work_over_tls_with_exactly_the_printed_rights(guarded, tmp_path):
    chosen = way(guarded, "SCRAM-SHA-256")
    route = PipelineUnderTest(guarded, tmp_path, kind=SparkProcess, **chosen.settings)
    route.create()
    route.write(*TEN)
    assert chosen.user is not None
    guarded.rights.allow(chosen.user, *needed(route, ENGINE="spark"))
    try:
        driver = route.run_to_end()
        assert SCRAM_PASSWORD not in driver.text()
    finally:
        route.close()
    assert sorted(record.value or b"" for record in route.outputs()) == TEN
    assert route.lag() == 0


@pytest.mark.long
@pytest.mark.rounds
@pytest.mark.parametrize(
    ("name", "publish", "each"),
    [
        pytest.param("certificate", "together", TEN, marks=at_length),
        pytest.param("SCRAM-SHA-512", "together", TEN, marks=at_length),
        ("SCRAM-SHA-512", "parallel", WIDE),
        pytest.param("tokens", "together", TEN, marks=at_length),
        pytest.param("token file", "together", TEN, marks=at_length),
    ],
)
def test_a_dataframe_pipeline_does_its_work_over_tls_with_exactly_the_printed_rights(
    guarded, unique, tmp_path, name, publish, each
):
    chosen, given, out = way(guarded, name), unique("in"), unique("out")
    guarded.create_topic(given, partitions=2)
    guarded.create_topic(out)
    spread = [topics.Given(value, partition=n % 2) for n, value in enumerate(each)]
    topics.produce(guarded.bootstrap_servers, given, *spread)
    more = {f"HAPAX_{variable}": text for variable, text in chosen.settings.items()}
    at_end = {"HAPAX_STOP_AFTER__AT_END": "true", "HAPAX_SPARK__PUBLISH": publish}
    values = environment(guarded, out, given, out, tmp_path / "c", **more, **at_end)
    ours = {key: text for key, text in (SPARK | values).items() if key.startswith("HAPAX_")}
    rights = kafka_rights(load_settings(ours | {"HAPAX_INSTANCE": INSTANCE}))
    assert chosen.user is not None
    guarded.rights.allow(chosen.user, *(right for right in rights if not right.optional))
    driver = pipeline_process(tmp_path, values)
    driver.start()
    try:
        await_(lambda: not driver.running, WITHIN_S, driver.text)
        code = driver.exit_code()
        said = driver.text()
    finally:
        driver.close()
    assert code == 0, said
    assert SCRAM_PASSWORD not in said
    assert tokens_of(guarded).client_secret not in said
    written = sorted(
        record.value or b"" for record in topics.read_back(guarded.bootstrap_servers, out)
    )
    assert written == sorted(2 * value for value in each)
