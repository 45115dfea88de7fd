import json
import time

import pytest

from hapax.core.errors import ConfigurationError
from hapax.settings import load_settings
from hapax.settings.redaction import hidden, is_secret
from hapax.settings.secrets import Strike, secrets_around, secrets_of
from tests.unit.test_settings import REQUIRED

KAFKA, SPARK = "HAPAX_KAFKA__PROPERTIES", "HAPAX_SPARK__PROPERTIES"
CHECKPOINT, MASTER = "HAPAX_SPARK__CHECKPOINT", "HAPAX_SPARK__MASTER"

HIDDEN_NAMES = """
sasl.password ssl.key.password ssl.key.pem ssl.keystore.password ssl.keystore.key sasl.jaas.config
sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
spark.hadoop.fs.s3a.access.key spark.hadoop.fs.s3a.secret.key spark.hadoop.fs.s3a.session.token
spark.hadoop.fs.s3a.encryption.key spark.hadoop.fs.s3a.bucket.orders.secret.key
spark.hadoop.fs.azure.account.key.shop.blob.core.windows.net
spark.hadoop.fs.azure.sas.orders.shop.blob.core.windows.net
spark.hadoop.fs.azure.account.oauth2.client.secret
spark.hadoop.fs.gs.auth.service.account.private.key
spark.hadoop.javax.jdo.option.ConnectionPassword spark.sql.catalog.lake.credential
spark.authenticate.secret spark.ssl.keyPassword spark.ssl.keyStorePassword
spark.kubernetes.authenticate.driver.oauthToken spark.executorEnv.AWS_SECRET_ACCESS_KEY
spark.databricks.apiKey SOME_API_KEY PGPASSWORD DB_PWD
"""

READABLE_NAMES = """
key.deserializer value.deserializer ssl.key.location ssl.keystore.location ssl.keystore.type
sasl.mechanism sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.sub.claim.name
ssl.endpoint.identification.algorithm client.id group.id linger.ms compression.type client.rack
message.max.bytes ssl.cipher.suites
spark.hadoop.fs.s3a.aws.credentials.provider spark.hadoop.fs.s3a.endpoint
spark.hadoop.hadoop.security.credential.provider.path spark.io.encryption.keySizeBits
spark.authenticate spark.executor.memory spark.ssl.keyStore spark.redaction.regex
spark.kubernetes.authenticate.driver.oauthTokenFile spark.sql.warehouse.dir
"""


@pytest.mark.parametrize("name", HIDDEN_NAMES.split())
def test_a_property_that_holds_a_secret_is_known_by_its_name(name):
    assert is_secret(name)


@pytest.mark.parametrize("name", READABLE_NAMES.split())
def test_a_property_that_only_speaks_of_a_secret_stays_readable(name):
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://u:canary@cache:6379/0", "redis://u:***@cache:6379/0"),
        ("redis://u:ca/nary@cache", "redis://u:***@cache"),
        ("redis://u:ca@nary@cache", "redis://u:***@cache"),
        ("https://canary@login.example/t", "https://***@login.example/t"),
        ("https://login.example/t?token=canary", "https://login.example/t?***"),
        ("https://login.example/t#canary", "https://login.example/t#***"),
        ("s3a://id:canary@orders/checkpoints", "s3a://id:***@orders/checkpoints"),
        ("k8s://https://u:canary@cluster:6443", "k8s://https://u:***@cluster:6443"),
        ("jdbc:sqlserver://db;user=u;password=canary", "jdbc:sqlserver://db;user=u;password=***"),
        (
            "-Xmx1g -Djavax.net.ssl.keyStorePassword=ca;nary -Dx=y",
            "-Xmx1g -Djavax.net.ssl.keyStorePassword=*** -Dx=y",
        ),
        (
            'a.PlainLoginModule required username="u" password="canary";',
            'a.PlainLoginModule required username="u" password="***";',
        ),
        ("Authorization: Bearer canarycanary", "Authorization: Bearer ***"),
        ("redis://cache:6379/0", "redis://cache:6379/0"),
        ("https://h:9000/path@v1", "https://h:9000/path@v1"),
        ("kafka-0:9092,kafka-1:9092", "kafka-0:9092,kafka-1:9092"),
    ],
)
def test_a_secret_is_hidden_by_its_place_and_the_rest_stays(text, shown):
    assert hidden(text) == shown


@pytest.mark.parametrize(
    ("variable", "properties"),
    [
        (KAFKA, {"sasl.oauthbearer.extensions": "logicalCluster=c,pw=canary"}),
        (KAFKA, {"my.password": "canary"}),
        (KAFKA, {"client.rack": "http://u:canary@rack"}),
        (SPARK, {"spark.hadoop.fs.s3a.secret.key": "canary"}),
        (SPARK, {"spark.driver.extraJavaOptions": "-Dx.trustStorePassword=canary"}),
        (SPARK, {"spark.hadoop.db": "jdbc:postgresql://db/x?user=u&password=canary"}),
    ],
)
def test_secrets_among_properties_are_shown_nowhere_and_known(variable, properties):
    text = json.dumps({"linger.ms" if variable == KAFKA else "spark.x": "7", **properties})
    settings = load_settings(REQUIRED | {variable: text})
    shown = settings.effective()[variable]
    assert "canary" not in shown + repr(settings)
    assert set(json.loads(shown)) == set(json.loads(text))
    assert '"7"' in shown
    assert Strike(secrets_of(settings))("refused: canary!") == "refused: ***!"


def test_properties_are_read_from_a_file(tmp_path):
    path = tmp_path / "properties"
    path.write_text('{\n  "spark.hadoop.fs.s3a.secret.key": "canary"\n}\n')
    settings = load_settings(REQUIRED | {f"{SPARK}_FILE": str(path)})
    assert settings.spark.properties == {"spark.hadoop.fs.s3a.secret.key": "canary"}
    path.write_text('{"linger.ms": 7}\n')
    settings = load_settings(REQUIRED | {f"{KAFKA}_FILE": str(path)})
    assert settings.kafka.properties == {"linger.ms": "7"}


@pytest.mark.parametrize(
    "environ",
    [
        {CHECKPOINT: "s3a://id:canary@orders/c"},
        {MASTER: "k8s://https://u:canary@cluster:6443", CHECKPOINT: "/c"},
        {MASTER: "spark://u:canary@cluster:7077", CHECKPOINT: "/c", "HAPAX_ENGINE": "spark"},
        {"HAPAX_KAFKA__SECURITY__PASSWORD_FILE": "canary"},
        {"HAPAX_DEDUP__REDIS_URL_FILE": "canary"},
        {"HAPAX_APP": "redis://u:canary@cache"},
        {SPARK: '{"spark.x": "canary'},
        {SPARK: '{"password=canary": ""}'},
        {KAFKA: '{"sasl.password": "canary"}'},
        {KAFKA: '{"Password=canary": "x"}'},
        {"HAPAX_PASSWORD": "canary"},
    ],
)
def test_no_mistake_repeats_a_secret(environ):
    pipeline = {"HAPAX_SPARK__DATAFRAME": "pipeline:daily"} if CHECKPOINT in environ else {}
    try:
        settings = load_settings(REQUIRED | environ | pipeline)
    except ConfigurationError as refusal:
        assert "canary" not in str(refusal)  # noqa: PT017 - refused or not, it is not shown
    else:
        assert "canary" not in repr(settings) + str(settings.effective())


def test_secrets_of_the_environment_are_found_wherever_they_are(tmp_path):
    path = tmp_path / "secret"
    path.write_text("in-a-file\n")
    known = Strike(
        secrets_around(
            {
                "HAPAX_DEDUP__REDIS_URL": "redis://u:p%40ssword@cache?db=1",
                "HAPAX_KAFKA__SECURITY__PASSWORD_FILE": str(path),
                "HAPAX_KAFKA__SECURITY__KEY_PASSWORD_FILE": "misplaced",
                "HAPAX_KAFKA__PASSWORD": "misspelt-one",
                SPARK: '{"spark.hadoop.fs.s3a.secret.key": "s3-key"',
                "AWS_SECRET_ACCESS_KEY": "of-somebody-else",
                "SOME_TOKEN": "true",
                "HOME": "/data/shop",
            }
        )
    )
    said = "p@ssword p%40ssword in-a-file misplaced misspelt-one s3-key of-somebody-else"
    assert known(said) == " ".join(["***"] * 7)
    assert known("true /data/shop cache") == "true /data/shop cache"


def test_secrets_are_struck_at_any_depth_in_every_spelling():
    strike = Strike(['hun"ter\\ 2'])
    found = strike.value(
        {"a": ['x hun"ter\\ 2', {"b": 'hun\\"ter\\\\ 2'}], "c": ("hun%22ter%5C%202", 7, None)}
    )
    assert found == {"a": ["x ***", {"b": "***"}], "c": ["***", 7, None]}


def test_the_folders_of_a_shell_are_no_passwords():
    around = {"PWD": "/data/shop", "OLDPWD": "/data/orders", "DB_PWD": "hunter22hunter22"}
    assert [*secrets_around(around)] == ["hunter22hunter22"]


@pytest.mark.parametrize(
    "part", ["a", "a.", "a:", "a://", "a-", 'a="', "\\", "Basic ", " ", "a://b:c", "a://?", "-Da="]
)
def test_a_long_text_costs_no_more_than_its_length(part):
    """100,000 characters took minutes where a pattern began again at each of them."""
    began_s = time.process_time()
    hidden(part * (100_000 // len(part)))
    hidden('password="' + part * (100_000 // len(part)))
    assert time.process_time() - began_s < 5
