from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException

from hapax.core.errors import ConfigurationError, ExitCode, PositionLostError, StopError
from hapax.engines.spark.dataframe.checkpoint import client_properties, java_option, source_options
from hapax.engines.spark.dataframe.query import died, load_pipeline, numbers
from hapax.engines.spark.dataframe.staging import StagedReport
from hapax.settings import load_settings
from tests.unit.test_settings import REQUIRED

SECURITY = "HAPAX_KAFKA__SECURITY__"

PROGRESS: dict[str, Any] = {
    "batchId": 4,
    "durationMs": {"addBatch": 900, "getBatch": 1, "latestOffset": 9, "triggerExecution": 1000},
    "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"},
    "observedMetrics": {"hapax_input": {"untimed": 6}},
    "stateOperators": [{"numRowsTotal": 5, "numRowsDroppedByWatermark": 2, "memoryUsedBytes": 90}],
    "sources": [
        {
            "startOffset": {"in": {"0": 10, "1": 0}},
            "endOffset": {"in": {"0": 20, "1": 3}},
            "latestOffset": {"in": {"0": 25, "1": 3}},
            "numInputRows": 12,
        }
    ],
}


def test_numbers_come_from_both_sides():
    found = numbers(
        PROGRESS, StagedReport(4, {"out": 3}, repeated=False, attempts=2, publish_s=0.3)
    )
    assert (found.inputs, found.outputs) == ({"in": 12}, {"out": 3})
    assert found.lags == {("in", 0): 5, ("in", 1): 0}
    assert (found.late, found.state_rows, found.state_bytes) == (2, 5, 90)
    assert (found.untimed, found.attempts) == (6, 2)
    phases_s = {"plan": 0.01, "work": 0.6, "publish": 0.3, "total": 1.0}
    assert found.phases_s == pytest.approx(phases_s)
    found = numbers(PROGRESS | {"stateOperators": [], "eventTime": {}, "observedMetrics": {}}, None)
    assert (found.untimed, found.outputs) == (0, {})  # without the sink's report
    assert "publish" not in found.phases_s


@pytest.mark.parametrize(
    ("text", "kind", "code"),
    [
        (
            "[X] Traceback\nhapax.core.errors.PositionLostError: old copy. Do this\n SQLSTATE",
            PositionLostError,
            ExitCode.POSITION_LOST,
        ),
        ("\nhapax.core.errors.ConfigurationError: cast it\n", ConfigurationError, 2),
        ("\nhapax.core.errors.ProducerDeadError: no broker answered\n", StopError, 1),
        ("[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] in-0", PositionLostError, 6),
        ("Failed to read log file /c/offsets/1. Incomplete log file", PositionLostError, 6),
        ("[STREAM_FAILED] division by zero === Streaming Query === plan", StopError, 1),
        ("x.UnknownTopicOrPartitionException: this server === plan", StopError, 1),
    ],
)
def test_what_a_query_died_of_decides_the_exit_code(text, kind, code):
    error = died(PySparkException(text))
    assert type(error) is kind
    assert error.exit_code == code
    assert "Traceback" not in str(error)
    assert "plan" not in str(error)


def test_what_spark_advises_to_set_is_left_out_for_it_is_no_setting_of_the_service():
    gone = "Partitions Set(in-0) have been deleted"
    text = f"x. If you don't want your query to fail, set failOnDataLoss to false. Reason: {gone}"
    assert "failOnDataLoss" not in str(died(PySparkException(text)))
    assert gone in str(died(PySparkException(text)))


def test_a_jvm_that_is_gone_is_said_to_be():
    assert "JVM is gone" in str(died(ConnectionRefusedError("refused")))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no_such_module:f", "cannot import no_such_module: ModuleNotFoundError"),
        ("json:nothing", "json has no function nothing"),
        ("json:__name__", "json has no function __name__"),
    ],
)
def test_a_pipeline_that_cannot_be_loaded_says_why(name, problem):
    with pytest.raises(ConfigurationError, match=problem):
        load_pipeline(name)


@pytest.mark.parametrize(
    "line", ["COLUMN = f.col('value')", "@f.udf('string')\ndef named(value): return value"]
)
def test_what_needs_spark_while_it_is_imported_is_refused_with_what_to_do(
    tmp_path, monkeypatch, line
):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    (tmp_path / "early.py").write_text(f"import pyspark.sql.functions as f\n{line}\n")
    with pytest.raises(ConfigurationError, match="build columns inside the function") as refused:
        load_pipeline("early:pipeline")
    assert "cannot import early" in refused.value.problems[0]


def test_the_source_reads_committed_data_and_loses_nothing_silently():
    options = source_options(load_settings(REQUIRED | {"HAPAX_INPUT__START": "latest"}))
    assert options["subscribe"] == "in-a,in-b"
    assert options["startingOffsets"] == "latest"
    assert options["failOnDataLoss"] == "true"
    assert options["kafka.isolation.level"] == "read_committed"
    assert options["maxOffsetsPerTrigger"] == "100000"
    refusing = source_options(load_settings(REQUIRED | {"HAPAX_INPUT__START": "refuse"}))
    assert refusing["startingOffsets"] == "earliest"


def test_a_password_is_quoted_for_java():
    security = {
        f"{SECURITY}PROTOCOL": "sasl_ssl",
        f"{SECURITY}SASL_MECHANISM": "SCRAM-SHA-512",
        f"{SECURITY}USERNAME": "u",
        f"{SECURITY}PASSWORD": 'p"\\x',
    }
    properties = client_properties(load_settings(REQUIRED | security))
    assert properties["security.protocol"] == "SASL_SSL"
    assert properties["sasl.mechanism"] == "SCRAM-SHA-512"
    assert properties["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="u" password="p\\"\\\\x";'
    )


def test_tokens_are_fetched_where_the_settings_say_and_checked_by_the_authority_there(tmp_path):
    (tmp_path / "login").write_text("-- begin\nend --\n")
    security = {
        f"{SECURITY}PROTOCOL": "sasl_ssl",
        f"{SECURITY}SASL_MECHANISM": "OAUTHBEARER",
        f"{SECURITY}OAUTH_TOKEN_URL": "https://login.example/token",
        f"{SECURITY}OAUTH_CLIENT_ID": "c",
        f"{SECURITY}OAUTH_CLIENT_SECRET": "s",
    }
    properties = client_properties(load_settings(REQUIRED | security))
    assert properties["sasl.oauthbearer.token.endpoint.url"] == "https://login.example/token"
    assert 'clientId="c" clientSecret="s";' in properties["sasl.jaas.config"]
    security[f"{SECURITY}OAUTH_CA_FILE"] = str(tmp_path / "login")
    settings = load_settings(REQUIRED | security)
    said = client_properties(settings)["sasl.jaas.config"]
    assert 'ssl.truststore.type="PEM"' in said
    assert r'ssl.truststore.certificates="-- begin\nend --\n"' in said
    assert java_option(settings) == (
        "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=https://login.example/token"
    )


def test_certificates_travel_as_text(tmp_path):
    for name in ("ca", "own", "key"):
        (tmp_path / name).write_text(f"-- {name} --")
    security = {
        f"{SECURITY}PROTOCOL": "ssl",
        f"{SECURITY}CA_FILE": str(tmp_path / "ca"),
        f"{SECURITY}CERTIFICATE_FILE": str(tmp_path / "own"),
        f"{SECURITY}KEY_FILE": str(tmp_path / "key"),
    }
    properties = client_properties(load_settings(REQUIRED | security))
    assert properties["ssl.truststore.certificates"] == "-- ca --"
    assert properties["ssl.keystore.certificate.chain"] == "-- own --"
    assert properties["ssl.keystore.key"] == "-- key --"
    with pytest.raises(ConfigurationError, match="CA_FILE=/nowhere cannot be read"):
        client_properties(load_settings(REQUIRED | security | {f"{SECURITY}CA_FILE": "/nowhere"}))
