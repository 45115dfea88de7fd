import json
import time

import pytest
from hypothesis import given, strategies as st

from hapax.core.errors import ConfigurationError
from hapax.settings import load_settings
from hapax.settings.properties import refusal
from hapax.settings.redaction import hidden, is_secret
from hapax.settings.secrets import Strike, secrets_around, secrets_of
from tests.unit.test_settings import REQUIRED, SECRETS
from tests.unit.test_settings_rules import SECURITY, problems

REDIS = "HAPAX_DEDUP__REDIS_URL"
PASSWORD = f"{SECURITY}PASSWORD"
SASL = {
    f"{SECURITY}PROTOCOL": "sasl_ssl",
    f"{SECURITY}SASL_MECHANISM": "PLAIN",
    f"{SECURITY}USERNAME": "u",
}


def password(**environ: str) -> str:
    secret = load_settings(REQUIRED | SASL | environ).kafka.security.password
    assert secret is not None
    return secret.get_secret_value()


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
def test_a_secret_of_the_environment_or_a_file_loses_its_line_end_alone(tmp_path, end):
    assert password(**{PASSWORD: f" hunter2 {end}"}) == " hunter2 "
    assert password(**{PASSWORD: f"two\nlines{end}"}) == "two\nlines"
    path = tmp_path / "password"
    path.write_text(f" hunter2{end}", newline="")
    assert password(**{f"{PASSWORD}_FILE": str(path)}) == " hunter2"


def test_a_secret_that_is_a_line_end_alone_is_refused():
    (problem,) = problems(**SASL, **{PASSWORD: "\n"})
    assert "it holds a line break and nothing else" in problem


@pytest.mark.parametrize("variable", sorted(SECRETS))
def test_every_secret_has_a_file(tmp_path, variable):
    (problem,) = problems(**{f"{variable}_FILE": str(tmp_path / "missing")})
    assert problem.startswith(f'{variable}_FILE="')
    assert "the file cannot be read: No such file" in problem
    (problem,) = problems(**{f"{variable}_FILE": str(tmp_path)})  # a folder
    assert "the file cannot be read" in problem


def test_a_secret_stands_in_one_place_only(tmp_path):
    (problem,) = problems(**SASL, **{PASSWORD: "hunter2", f"{PASSWORD}_FILE": str(tmp_path)})
    assert problem == f"{PASSWORD} and {PASSWORD}_FILE are both set: keep one of them"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"\xffhunter2", "is not UTF-8 text"),
        (b"hunter2" * 10_000, "is too large for a secret"),
    ],
)
def test_a_file_that_holds_no_secret_is_refused(tmp_path, content, reason):
    path = tmp_path / "password"
    path.write_bytes(content)
    (problem,) = problems(**SASL, **{f"{PASSWORD}_FILE": str(path)})
    assert problem.startswith(f"{PASSWORD}_FILE=")
    assert problem.endswith(f"the file {reason}")
    assert "hunter2" not in problem


def test_a_secret_that_the_client_would_cut_off_is_refused(tmp_path):
    path = tmp_path / "password"
    path.write_bytes(b"hun\0ter2")
    (problem,) = problems(**SASL, **{f"{PASSWORD}_FILE": str(path)})
    assert problem.startswith(f"{PASSWORD}_FILE: it holds a zero byte")
    assert "hun" not in problem.replace("hunter2", "")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://cache:6379/0", "redis://cache:6379/0"),
        ("redis://:hunter2@cache:6379/0", "redis://:***@cache:6379/0"),
        ("rediss://user:hunter2@cache", "rediss://user:***@cache"),
        ("redis://user:hun%40ter2@[::1]:6379/1", "redis://user:***@[::1]:6379/1"),
        ("redis://cache/0?password=hunter2", "redis://cache/0?***"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("unix://u:hunter2@/run/redis.sock?db=1", "unix://u:***@/run/redis.sock?***"),
    ],
)
def test_the_claim_store_is_shown_with_its_host_and_without_its_password(url, shown):
    settings = load_settings(REQUIRED | {REDIS: url})
    assert settings.dedup.redis_url is not None
    assert settings.dedup.redis_url.get_secret_value() == url
    assert settings.effective()[REDIS] == shown
    assert "ter2" not in repr(settings)


@pytest.mark.parametrize(
    "url",
    [
        *("cache:6379", "http://:hunter2@cache", "redis://", "redis://:hunter2@", "unix://"),
        *("redis://:hun/ter2@cache:6379", "redis://:hunter2@cache:99999"),
        *("redis://:hunter2@cache:0", "redis://:hunter2@cache/first", "redis://[::1:hunter2"),
        "redis://cache hunter2",
    ],
)
def test_an_address_that_is_none_is_refused_without_repeating_it(url):
    (problem,) = problems(**{REDIS: url})
    assert problem.startswith(f"{REDIS}: ")
    assert "ter2" not in problem


@pytest.mark.parametrize(
    "url", ["login.example/token", "ftp://login.example", "https://u:hunter2@login.example/t"]
)
def test_a_token_address_is_plain_http(url):
    (problem,) = problems(
        **SASL | {f"{SECURITY}SASL_MECHANISM": "OAUTHBEARER"},
        **{
            f"{SECURITY}OAUTH_TOKEN_URL": url,
            f"{SECURITY}OAUTH_CLIENT_ID": "c",
            f"{SECURITY}OAUTH_CLIENT_SECRET": "s",
        },
    )
    assert problem.startswith(f"{SECURITY}OAUTH_TOKEN_URL: ")
    assert "hunter2" not in problem


MARK = "zyzzyva"


@given(
    st.sampled_from(
        [
            *sorted(SECRETS),
            "HAPAX_KAFKA__PROPERTIES",
            "HAPAX_KAFKA__BOOTSTRAP_SERVERS",
            "HAPAX_UNREAD",
        ]
    ),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8),
    st.sampled_from(["", "redis://", "redis://:", '{"a": "', '{"sasl.password": "', "redis://["]),
)
def test_no_problem_ever_repeats_what_may_be_a_secret(variable, noise, start):
    text = f"{start}{noise}{MARK}@{noise}"
    try:
        settings = load_settings(REQUIRED | {variable: text})
    except ConfigurationError as refusal:
        assert MARK not in str(refusal)  # noqa: PT017 - refused or not, it is not shown
    else:
        assert MARK not in repr(settings)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("socket_timeout=60", "the option socket_timeout of its query: it is set by HAPAX_DEDUP"),
        ("timeout=60", "it is set by HAPAX_DEDUP__TIMEOUT"),
        ("decode_responses=true", "the option decode_responses of its query: the claim store sets"),
        ("protocol=3", "the claim store sets it itself"),
        ("db=1&max_connections=1", "max_connections"),
        ("hunter2=1", "an option of its query is not known; those that pass are client_name, db"),
    ],
)
@pytest.mark.parametrize("scheme", ["redis://cache", "redis+sentinel://one/main", "unix:///r.sock"])
def test_options_of_the_query_that_override_the_stores_own_are_refused(scheme, option, words):
    (problem,) = problems(**{REDIS: f"{scheme}?{option}"})
    assert words in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize("option", ["db=1", "ssl_cert_reqs=required", "client_name=shop&db=2"])
def test_other_options_of_the_query_pass(option):
    assert load_settings(REQUIRED | {REDIS: f"rediss://cache?{option}"}).dedup.claims_url


def test_what_travels_of_a_registry_has_its_settings_and_secrets_with_their_files(tmp_path):
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    settings = load_settings(
        REQUIRED
        | {
            "HAPAX_REGISTRY__URL": "http://one:8081,http://two:8081",
            "HAPAX_REGISTRY__USER": "shop",
            "HAPAX_REGISTRY__PASSWORD_FILE": str(file),
            "HAPAX_REGISTRY__GRACE": "2s",
            "HAPAX_CALL__TIMEOUT": "500ms",
        }
    )
    travelling = settings.formats.registry
    assert travelling.urls == ("http://one:8081", "http://two:8081")
    assert travelling.password is not None
    assert (travelling.password.text, travelling.password.path) == ("hunter2", str(file))
    assert (travelling.token, travelling.grace_ms, travelling.wait_s) == (None, 2_000, 0.25)
    assert "hunter2" not in repr(settings.formats)


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


@pytest.mark.parametrize(
    ("name", "hides"),
    [
        *((name, True) for name in HIDDEN_NAMES.split()),
        *((name, False) for name in READABLE_NAMES.split()),
    ],
)
def test_a_property_that_holds_a_secret_is_known_by_its_name(name, hides):
    assert is_secret(name) is hides


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
        {SPARK: '{"spark.master": "spark://u:canary@h"}'},
        {SPARK: '{"spark.hadoop.fs.s3a.secret.key": {"a": "canary"}}'},
        {KAFKA: '{"sasl.password": "canary"}'},
        {"HAPAX_KAFKA__PROPERTIES_FILE": "canary"},
        {"HAPAX_DEDUP__REDIS_URL": "redis://u:canary@h:99999"},
        {"HAPAX_KAFKA__BOOTSTRAP_SERVERS": "https://u:canary@h:9092"},
        {"HAPAX_KAFKA__SECURITY__OAUTH_TOKEN_URL": "https://u:canary@h/token"},
        {"HAPAX_KAFKA__SECURITY__PASSWORD": "canary"},
        {CHECKPOINT: "s3a://id:canary@orders\x01"},
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
    assert Strike(['hun"ter\\ 2']).value(
        {"a": ['x hun"ter\\ 2', {"b": 'hun\\"ter\\\\ 2'}], "c": ("hun%22ter%5C%202", 7, None)}
    ) == {"a": ["x ***", {"b": "***"}], "c": ["***", 7, None]}


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


REFUSED_NAMES = """
bootstrap.servers metadata.broker.list
enable.auto.commit auto.commit.enable auto.commit.interval.ms enable.auto.offset.store
offset.store.method auto.offset.reset isolation.level enable.partition.eof check.crcs
enable.idempotence enable.gapless.guarantee acks request.required.acks retries
message.send.max.retries max.in.flight max.in.flight.requests.per.connection queuing.strategy
message.timeout.ms delivery.timeout.ms transaction.timeout.ms transactional.id
group.id group.instance.id group.protocol session.timeout.ms heartbeat.interval.ms
max.poll.interval.ms partition.assignment.strategy partitioner partitioner_cb
metadata.recovery.strategy debug logger log_level log_cb log.queue log.connection.close
log.thread.name
error_cb stats_cb throttle_cb oauth_cb dr_cb dr_msg_cb rebalance_cb offset_commit_cb
oauthbearer_token_refresh_cb ssl.certificate.verify_cb ssl_engine_callback_data on_delivery
on_commit opaque default_topic_conf default.topic.config delivery.report.only.error
plugin.library.paths interceptors ssl.engine.location ssl.engine.id ssl.providers
test.mock.num.brokers
security.protocol sasl.mechanism sasl.mechanisms sasl.username sasl.password
sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.kerberos.keytab
enable.sasl.oauthbearer.unsecure.jwt https.ca.location ssl.ca.location ssl.certificate.location
ssl.key.location ssl.key.password ssl.key.pem ssl.certificate.pem ssl.ca.pem https.ca.pem
ssl.keystore.location ssl.keystore.password
"""

ACCEPTED_NAMES = """
linger.ms batch.size batch.num.messages compression.type client.rack client.id fetch.min.bytes
fetch.max.bytes queued.min.messages socket.timeout.ms socket.keepalive.enable
reconnect.backoff.ms retry.backoff.ms statistics.interval.ms message.max.bytes
topic.metadata.refresh.interval.ms ssl.cipher.suites ssl.endpoint.identification.algorithm
sasl.oauthbearer.extensions group.remote.assignor
"""


def test_each_property_that_breaks_the_promise_or_has_its_setting_is_refused():
    # librdkafka strips a leading "topic.": topic.acks is acks.
    prefixes = ("", "topic.", "topic.topic.")
    names = [prefix + name for prefix in prefixes for name in REFUSED_NAMES.split()]
    found = problems(**{KAFKA: json.dumps(dict.fromkeys(names, "1"))})
    refused = sorted(problem.partition(" is refused: ")[0] for problem in found)
    assert refused == sorted(f"{KAFKA}: {name}" for name in names)


def test_properties_that_only_tune_are_passed_on():
    given = dict.fromkeys(ACCEPTED_NAMES.split(), "1")
    assert load_settings(REQUIRED | {KAFKA: json.dumps(given)}).kafka.properties == given


def test_values_are_passed_on_as_the_client_writes_them():
    text = '{"a": 5, "b": 0.50, "c": true, "d": false, "e": "x y"}'
    properties = load_settings(REQUIRED | {KAFKA: text}).kafka.properties
    assert properties == {"a": "5", "b": "0.50", "c": "true", "d": "false", "e": "x y"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("linger.ms=5", "write a JSON object"),
        ("[]", "write a JSON object"),
        ("5", "write a JSON object"),
        ("[" * 100_000, "write a JSON object"),
        ('{"linger.ms": null}', "linger.ms must be a text on one line"),
        ('{"linger.ms": [5]}', "linger.ms must be a text on one line"),
        ('{"linger.ms": {"a": 5}}', "linger.ms must be a text on one line"),
        ('{"client.id": "a\\u0000b"}', "client.id must be a text on one line"),
        ('{"linger.ms": 5, "linger.ms": 6}', "linger.ms is given more than once"),
        ('{"Acks": 0}', '"Acks" is not the name of a librdkafka property'),
        ('{"acks ": 0}', '"acks " is not the name of a librdkafka property'),
    ],
)
def test_what_is_no_object_of_plain_values_is_refused(text, reason):
    (problem,) = problems(**{KAFKA: text})
    assert problem.startswith(f"{KAFKA}: {reason}")


def test_a_refused_property_names_the_setting_to_use():
    assert refusal("ssl.ca.location") == "use HAPAX_KAFKA__SECURITY__CA_FILE"
    assert refusal("group.id") == "use HAPAX_APP"
    assert refusal("linger.ms") is None
