"""Each check names its own fault, and nothing else does; facts are made by hand."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from hapax.claims.redis_health import judged_health
from hapax.cluster.cluster_state import Address, ClusterState, Log, Partition, ReaderAtRest, Topic
from hapax.cluster.partition_offsets import LogOffsets
from hapax.core.ports import Stuck
from hapax.operations.doctor import examination as doctor
from hapax.operations.doctor.check import Check, CheckContext, CheckResult, Verdict, ok, worst_first
from hapax.operations.doctor.examination import CHECKS, judge
from hapax.processing.retry_later import LEVELS
from tests.kit.doctor import (
    BROKER,
    DAY_MS,
    HOUR_MS,
    KAFKA,
    KAFKA_THERE,
    LOG,
    MEMBER,
    SEEN_MS,
    SOUND,
    healthy,
    healthy_there,
    judged,
    topic,
    troubles,
    with_broker,
    with_claims,
    with_group,
    with_kafka,
    with_log,
    with_process,
    with_retry,
    with_sample,
    with_state,
    with_topic,
    with_two_inputs,
)

Change = Callable[[CheckContext], CheckContext]

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"
WARN, FAIL = Verdict.WARN, Verdict.FAIL
DEAD = Address("kafka-1:9092", "nobody answers")
TAKES_LITTLE = '{"receive.message.max.bytes": 1048588}'


def test_a_healthy_pipeline_gets_no_word():
    found = judged(healthy())
    assert troubles(found) == {}
    told = {one.check for one in found if one.verdict is Verdict.PASS}
    assert {check.name for check in CHECKS} - told == set()


def with_file(served: str, says: str) -> Change:
    """Return what lets a broker serve another in-sync minimum than its file says."""
    settings = {1: {**BROKER, "min.insync.replicas": served}}
    log = {**KAFKA.topics, "__consumer_offsets": topic()}  # graded as it is, not by the default
    return with_kafka(topics=log, settings=settings, overridden={1: says})


TOPICS, LONE = KAFKA.topics, [Partition(1, (1,), (1,))] * 2
PLACES = ("high_watermark", "last_stable", "last_stable_later", "committed")
FOREIGN = {("in", number): replace(LOG, foreign="") for number in (0, 1)}
FAULTS: list[tuple[str, Verdict, Change]] = [
    ("client-library", FAIL, with_process(librdkafka="2.13.2")),
    ("file-descriptors", FAIL, with_process(files_max=100)),
    ("file-descriptors", WARN, with_process(files_max=512)),
    ("bootstrap", WARN, with_kafka(bootstrap=(KAFKA.bootstrap[0], DEAD))),
    ("bootstrap", FAIL, with_kafka(bootstrap=(DEAD,), listeners={}, problem="none")),
    ("brokers", FAIL, with_kafka(listeners={}, problem="_TRANSPORT")),
    ("brokers", WARN, with_kafka(controller=-1)),
    ("listeners", FAIL, with_kafka(listeners={**KAFKA.listeners, 1: DEAD})),
    ("listeners", FAIL, with_kafka(listeners={1: DEAD}, problem="none at its address")),
    ("listeners", FAIL, with_kafka(untold={"settings of broker 2": "no answer within 3 s"})),
    ("broker-versions", FAIL, with_kafka(apis={"TxnOffsetCommit": 2})),
    ("transaction-timeout", FAIL, with_broker(transaction__max__timeout__ms="9999")),
    ("transaction-log", WARN, with_topic("__transaction_state", SOUND, min__insync__replicas="4")),
    ("transaction-log", WARN, with_topic("__transaction_state", SOUND, min__insync__replicas="1")),
    ("offsets-log", FAIL, with_broker(offsets__topic__replication__factor="1")),
    ("transactional-id-expiry", WARN, with_broker(transactional__id__expiration__ms="60000")),
    ("offsets-retention", FAIL, with_broker(offsets__retention__minutes="60")),
    ("session-timeout", FAIL, with_broker(group__max__session__timeout__ms="10000")),
    ("session-timeout", FAIL, with_broker(group__min__session__timeout__ms="20000")),
    ("auto-create", WARN, with_broker(auto__create__topics__enable="true")),
    ("topics", FAIL, with_kafka(topics={**KAFKA.topics, "out": Topic("UNKNOWN_TOPIC")})),
    ("partitions", FAIL, with_topic("out", SOUND, Partition(-1, (1, 2, 3), (2,)))),
    ("partitions", FAIL, with_topic("out", SOUND, Partition(1, (1, 2, 3), (1,)))),
    ("partitions", WARN, with_topic("out", SOUND, Partition(1, (1, 2, 3), (1, 2)))),
    ("partition-counts", WARN, with_two_inputs),
    ("durability", FAIL, with_topic("out", *LONE, min__insync__replicas="1")),
    ("durability", WARN, with_topic("dead", SOUND, min__insync__replicas="1")),
    ("durability", WARN, with_file("1", "2")),
    ("fetch-size", FAIL, lambda _: healthy(HAPAX_KAFKA__PROPERTIES=TAKES_LITTLE)),
    ("durability", WARN, with_topic("in", SOUND, SOUND, min__insync__replicas="3")),
    ("unclean-election", FAIL, with_topic("out", unclean__leader__election__enable="true")),
    ("compaction", WARN, with_topic("in", cleanup__policy="compact,delete")),
    ("compaction", FAIL, with_topic("dead", cleanup__policy="compact")),
    ("message-size", WARN, with_topic("dead", max__message__bytes="1000")),
    ("positions", FAIL, with_log("in", committed=3)),
    ("positions", FAIL, with_log("in", committed=30)),
    ("retention", WARN, with_log("in", committed=7, since={7 * DAY_MS // 2: 8})),
    ("retention", FAIL, with_log("in", committed=7, since={7 * DAY_MS * 9 // 10: 8})),
    ("retention-bytes", WARN, with_topic("in", retention__bytes="1000000")),
    ("claim-ttl", WARN, with_topic("in", retention__ms=str(9 * DAY_MS))),
    ("claim-ttl", WARN, with_topic("in", retention__ms="-1")),
    ("claim-ttl", FAIL, with_log("in", committed=7, since={8 * DAY_MS: 8})),
    ("dead-letter-retention", WARN, with_topic("dead", retention__ms=str(DAY_MS))),
    ("state-changelog", FAIL, with_state(1)),
    ("state-changelog", FAIL, with_state(cleanup__policy="compact,delete")),
    ("state-changelog", WARN, with_state(delete__retention__ms=str(HOUR_MS - 1))),
    ("state-changelog", WARN, with_state(min__compaction__lag__ms="1")),
    ("state-changelog", WARN, with_state(low=1)),
    ("durability", WARN, with_state(min__insync__replicas="1")),
    ("state-disk", WARN, with_state(folder=None)),
    ("retry-topic", FAIL, with_retry(LEVELS - 1)),
    ("retry-topic", FAIL, with_retry(retention__ms=str(DAY_MS))),
    ("retry-topic", WARN, with_retry(retention__ms=str(2 * DAY_MS))),
    ("retry-topic", FAIL, with_retry(retention__bytes="1000000")),
    ("retry-topic", FAIL, with_retry(cleanup__policy="compact")),
    ("undecodable", FAIL, with_kafka(undecodable={("in", 0): Stuck(7, "bad codec")})),
    ("open-transactions", WARN, with_log("out", high_watermark=12)),
    ("open-transactions", FAIL, with_log("out", high_watermark=12, since={20_000: 12})),
    ("open-transactions", FAIL, with_log("in", high_watermark=12, since={900_000: 12})),
    ("rights", FAIL, with_kafka(topics={**TOPICS, "out": replace(topic(), operations=("READ",))})),
    ("rights", FAIL, with_kafka(topics={**TOPICS, "in": Topic("TOPIC_AUTHORIZATION_FAILED: no")})),
    ("rights", FAIL, with_group(operations=("DESCRIBE",))),
    ("rights", FAIL, with_kafka(ids={"shop:0": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED: no"})),
    ("group-state", WARN, with_group(state="PREPARING_REBALANCING")),
    ("group-offsets", WARN, with_kafka(logs={**KAFKA.logs, **FOREIGN})),
    ("readers", WARN, with_kafka(readers=(ReaderAtRest("billing", "out", 0, 9, 10),))),
    ("keys", WARN, with_sample(placed={"murmur2": 10, "murmur2,crc32": 20, "crc32": 10})),
    ("keys", WARN, with_sample(partitions=12, placed={"murmur2": 60, "": 20})),
    ("keys", WARN, with_sample(placed={"murmur2": 1, "": 1}, torn=1)),
    ("timestamps", WARN, with_sample(timestamps_ms=(SEEN_MS, SEEN_MS + HOUR_MS + 1))),
    ("timestamps", WARN, with_sample(timestamps_ms=(-1, SEEN_MS))),
    ("timestamps", WARN, with_sample(behind_ms=7 * DAY_MS + 1)),
    ("timestamps", WARN, with_sample(timestamps_ms=(SEEN_MS // 1000,))),
    ("output-timestamps", WARN, with_topic("out", message__timestamp__before__max__ms="1")),
    ("output-timestamps", WARN, with_topic("out", message__timestamp__before__max__ms=str(DAY_MS))),
    ("group-members", FAIL, with_group(members=(MEMBER, replace(MEMBER, client_id="rdkafka")))),
    ("group-members", FAIL, with_group(members=(MEMBER, replace(MEMBER, topics=("other",))))),
    ("group-members", FAIL, with_group(members=(MEMBER, MEMBER))),
    ("group-members", FAIL, with_group(assignor="range")),
    ("group-members", FAIL, with_group(protocol="consumer")),
    ("claim-store", FAIL, with_claims(problem="it refuses the configured user or password")),
    ("claim-version", FAIL, with_claims({"redis_version": "6.0.9"})),
    ("claim-permissions", FAIL, with_claims(refused=("hset: no",))),
    ("claim-role", FAIL, with_claims({"role": "slave"})),
    ("claim-eviction", FAIL, with_claims(settings={"maxmemory-policy": "allkeys-lru"})),
    ("claim-persistence", FAIL, with_claims({"aof_enabled": "0"})),
    ("claim-persistence", WARN, with_claims({"aof_enabled": "0"}, {"save": "3600 1"})),
    ("claim-persistence", WARN, with_claims(settings={"appendfsync": "everysec"})),
    ("claim-replicas", WARN, with_claims({"connected_slaves": "0"})),
    ("claim-replicas", WARN, with_claims(settings={"min-replicas-to-write": "0"})),
    ("claim-memory", FAIL, with_claims({"maxmemory": "1000001"})),
    ("claim-memory", WARN, with_claims({"maxmemory": "1200000"})),
    ("claim-memory", WARN, with_log("in", since={HOUR_MS: 0}, **dict.fromkeys(PLACES, 10**9))),
    ("claims-present", WARN, with_claims(claimed=False)),
    ("claim-clock", WARN, with_claims(skew_ms=-5000)),
    ("cluster-offsets", FAIL, with_log("in", cluster_id="another")),
    ("outputs-cluster", FAIL, lambda _: with_kafka(cluster_id="ours")(healthy_there())),
    ("claim-cluster", FAIL, with_claims(cluster_id="another")),
]


def test_a_retry_topic_is_well_and_one_that_is_not_there_is_named_with_its_command():
    assert troubles(judged(with_retry()(healthy()))) == {}
    found = judged(with_retry(0)(healthy()))
    assert troubles(found).keys() == {"topics", "retry-topic"}
    (missing,) = [one for one in found if one.check == "retry-topic"]
    assert f"--create --topic shop-retry --partitions {LEVELS}" in missing.fix


def test_without_a_dead_letter_topic_an_output_that_is_refused_stops_the_service():
    refusing = with_topic("out", message__timestamp__before__max__ms="1")
    case = refusing(healthy(HAPAX_DEAD_LETTER__TOPIC=""))
    assert troubles(judged(case))["output-timestamps"] is FAIL


def test_what_could_not_be_read_of_other_programs_is_a_quiet_line_and_no_praise():
    refused = {"samples": "in/0: cannot be read", "readers": "GROUP_AUTHORIZATION_FAILED"}
    found = judged(with_kafka(samples={}, untold=refused)(healthy()))
    assert troubles(found) == {}
    said = {one.check: one.saw for one in found if one.verdict is Verdict.UNTOLD}
    assert said.keys() == {"keys", "timestamps", "readers"}
    assert said["keys"] == "last records of in: in/0: cannot be read"


NEITHER = {"crc32": 40, "fnv1a": 40, "": 40}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"partitions": 12, "placed": {"": 110, "murmur2": 10}}, "no partitioner that is known"),
        ({"partitions": 12, "placed": {"crc32": 1}}, "no partitioner that is known"),  # by chance
        ({"partitions": 12, "placed": {"crc32": 3}}, "where CRC32"),
        ({"partitions": 1, "placed": {"murmur2,crc32,fnv1a": 9}}, "where Java's"),
        ({"placed": {}}, "0 sampled keys lie where Java's"),
        ({"partitions": 12, "placed": NEITHER}, "no partitioner that is known"),
    ],
)
def test_keys_that_say_nothing_against_one_partitioner_are_no_warning(facts, words):
    (found,) = (one for one in judged(with_sample(**facts)(healthy())) if one.check == "keys")
    assert found.verdict is Verdict.PASS
    assert words in found.saw


@pytest.mark.parametrize(
    ("partitioner", "words"),
    [("consistent_random", "as well"), ("murmur2", "elsewhere"), ("random", "elsewhere")],
)
def test_whether_outputs_lie_where_their_inputs_do_is_said(partitioner, words):
    case = healthy(HAPAX_OUTPUT__PARTITIONER=partitioner)
    found = judged(with_sample(placed={"crc32": 20})(case))
    assert [words in one.saw for one in found if one.check == "keys"] == [True]


@pytest.mark.parametrize(
    ("check", "verdict", "change"),
    [pytest.param(*one, id=f"{number}-{one[0]}") for number, one in enumerate(FAULTS)],
)
def test_a_planted_fault_is_named_by_its_own_check_alone(check, verdict, change):
    found = judged(change(healthy()))
    assert troubles(found) == {check: verdict}
    assert not re.search(r"kafka-\S+\.sh (?!--bootstrap-server \S+:\d)", str(found))


def test_every_check_has_a_fault_that_it_names():
    never = {"settings", "schema-registry", *ENCRYPTION}  # beside this table
    assert {check.name for check in CHECKS} - {name for name, *_ in FAULTS} == never


@pytest.mark.parametrize(
    ("check", "environ"),
    [
        (
            "transaction-timeout",
            {
                "HAPAX_TRANSACTION__TIMEOUT": "14m",
                "HAPAX_GROUP__SESSION_TIMEOUT": "20m",
                "HAPAX_GROUP__MAX_POLL_INTERVAL": "1h",
                "HAPAX_WATCHDOG__TIMEOUT": "30m",
            },
        ),
        (
            "broker-versions",
            {"HAPAX_GROUP__PROTOCOL": "consumer", "HAPAX_GROUP__MEMBERSHIP": "dynamic"},
        ),
    ],
)
@pytest.mark.parametrize("preview", [{}, {"ConsumerGroupHeartbeat": 0}])
def test_a_setting_that_does_not_fit_is_named(check, environ, preview):
    case = with_broker(transaction__max__timeout__ms="600000")(healthy(**environ))
    apis = {"TxnOffsetCommit": 5, **preview}
    case = with_kafka(apis=apis, group=None, settings=case.kafka.settings)(case)
    assert set(troubles(judged(case))) == {check}


ENCRYPTION = {"kafka-plaintext", "kafka-verification", "redis-encryption"}
OPEN = {"HAPAX_KAFKA__SECURITY__PROTOCOL": "plaintext"}
PROPERTIES, REDIS = "HAPAX_KAFKA__PROPERTIES", "HAPAX_DEDUP__REDIS_URL"


@pytest.mark.parametrize(
    ("check", "environ"),
    [
        ("kafka-plaintext", OPEN),
        # Brokers advertise other addresses.
        ("kafka-plaintext", {**OPEN, "HAPAX_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9092"}),
        ("kafka-verification", {PROPERTIES: '{"enable.ssl.certificate.verification": "False"}'}),
        ("kafka-verification", {PROPERTIES: '{"ssl.endpoint.identification.algorithm": "none"}'}),
        ("redis-encryption", {REDIS: "redis://u:p@cache:6379/0"}),
        ("redis-encryption", {REDIS: "redis+cluster://u:p@127.0.0.1,cache"}),
        ("redis-encryption", {REDIS: "rediss://cache/0?ssl_cert_reqs=none"}),
        ("redis-encryption", {REDIS: "rediss://cache/0?ssl_check_hostname=False"}),
    ],
)
def test_what_travels_in_the_open_or_is_not_verified_is_named(check, environ):
    found = judged(healthy(**environ))
    assert troubles(found) == {check: WARN}
    assert "u:p@" not in str(found)


def test_what_stays_within_this_machine_may_travel_in_the_open():
    servers = {"HAPAX_KAFKA__BOOTSTRAP_SERVERS": "localhost:9092,[::1]:9093,127.0.0.2"}
    environ = {**OPEN, **servers, REDIS: "redis://127.0.0.1:6379/0"}
    local = with_kafka(listeners={1: Address("127.0.0.1:9092")})(healthy(**environ))
    assert ENCRYPTION.isdisjoint(troubles(judged(local)))


def test_what_is_broken_now_stands_before_what_can_happen_one_day():
    case = healthy()
    for change in (
        with_topic("out", unclean__leader__election__enable="true"),
        with_broker(offsets__retention__minutes="60"),
        with_claims(problem="connection refused"),
    ):
        case = change(case)
    case = with_kafka(logs={**KAFKA.logs, ("in", 0): replace(LOG, committed=3)})(case)
    order = [one.check for one in worst_first(judged(case)) if one.verdict is FAIL]
    assert order == ["positions", "claim-store", "offsets-retention", "unclean-election"]


def test_a_group_without_members_is_named_only_while_records_wait():
    empty = with_group(state="EMPTY", members=())(healthy())
    assert troubles(judged(empty)) == {}
    logs = {**KAFKA.logs, ("in", 1): Log(offsets=LogOffsets(0, 9, 9), committed=3)}
    waiting = with_kafka(group=empty.kafka.group, logs=logs)(empty)
    assert troubles(judged(waiting)) == {"group-state": WARN}


def test_a_transaction_that_moved_on_between_the_looks_or_a_file_that_asks_for_less_is_no_trouble():
    moved = with_log("out", last_stable=6, last_stable_later=9, high_watermark=10)
    assert troubles(judged(moved(healthy()))) == {}
    assert troubles(judged(with_file("2", "1")(healthy()))) == {}


def test_what_brokers_and_redis_do_not_tell_is_neither_praised_nor_blamed():
    bare = {name: Topic(partitions=one.partitions) for name, one in TOPICS.items()}
    case = with_kafka(topics=bare, settings={}, group=None, logs={}, apis={}, ids={})(healthy())
    store = judged_health("cache:6379/0", info={}, settings={})
    found = judged(case._replace(claims=store))
    assert troubles(found) == {}
    untold = {one.check for one in found if one.verdict is Verdict.UNTOLD}
    assert untold >= {"durability", "transaction-timeout", "group-state", "rights"}
    assert untold >= {"claim-eviction", "claim-persistence", "claim-memory", "claim-clock"}


@pytest.mark.parametrize("end", ["min", "max"])
def test_a_limit_of_session_timeouts_that_is_not_reported_is_not_known_and_no_zero(end):
    name = f"group.{end}.session.timeout.ms"
    settings = {1: {key: value for key, value in BROKER.items() if key != name}}
    found = judged(with_kafka(settings=settings)(healthy()))
    (one,) = (one for one in found if one.check == "session-timeout")
    assert (one.verdict, name in one.saw) == (Verdict.UNTOLD, True)


def test_positions_that_are_not_known_are_not_praised():
    logs = {where: log for where, log in KAFKA.logs.items() if where[1] == 0}
    untold = {"offsets of broker 2": "LEADER_NOT_AVAILABLE: no"}
    found = judged(with_kafka(logs=logs, untold=untold)(healthy()))
    assert troubles(found) == {}
    lines = {one.check: one.saw for one in found if one.verdict is Verdict.UNTOLD}
    assert lines.keys() >= {"positions", "retention", "open-transactions"}
    assert lines["positions"] == "offsets of in/1: LEADER_NOT_AVAILABLE: no"


def test_without_a_claim_store_nothing_is_said_about_one():
    found = judged(healthy(HAPAX_DEDUP__REDIS_URL="")._replace(claims=None))
    assert troubles(found) == {}
    said = [one.check for one in found if one.check.startswith("claim-")]
    assert said == ["claim-ttl", "claim-store"]


def test_a_check_that_fails_itself_does_not_hide_the_others():
    def broken(_case: CheckContext) -> Iterator[CheckResult]:
        yield ok("this far")
        raise KeyError("x")

    checks = [Check("first", "process", broken), CHECKS[0]]
    found = list(judge(healthy(), checks))
    assert [one.verdict for one in found] == [Verdict.UNTOLD, Verdict.PASS]
    assert "KeyError" in found[0].saw


def test_state_needs_a_topic_and_a_folder_that_take_all_of_it(monkeypatch):
    assert troubles(judged(with_state()(healthy()))) == {}
    found = judged(with_state(0)(healthy()))
    (saw,) = [one.saw for one in found if one.check == "state-changelog"]
    assert saw.startswith("topic shop-state, which keeps its state, does not exist")
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1 << 19))
    assert troubles(judged(with_state()(healthy()))) == {"state-disk": WARN}


def test_the_page_has_a_row_for_each_check_in_their_order_and_says_what_planted_faults_come_to():
    rows = re.findall(r"^\| `([a-z-]+)` \| .+ \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert [name for name, _finds in rows] == [check.name for check in CHECKS]
    finds = dict(rows)
    assert len(finds) == len(rows)
    for name, verdict, _change in (*FAULTS, *TARGET_FAULTS):
        words = finds[name].replace("As for durability.", finds["durability"])
        assert f"{verdict}: " in words, name


def test_this_process_is_described():
    found = doctor.look_at_process()
    assert found.libraries.keys() >= {"confluent-kafka", "redis"}
    assert found.files_max is None or found.files_max > 0


# -- A pipeline between two clusters -----------------------------------------------------------


HERE, THERE = "kafka-0:9092,kafka-1:9092", "there-0:9092"
PLAIN = {"HAPAX_OUTPUT__KAFKA__SECURITY__PROTOCOL": "plaintext"}
UNVERIFIED = {"HAPAX_OUTPUT__KAFKA__PROPERTIES": '{"enable.ssl.certificate.verification":"false"}'}


def source(there: CheckContext) -> CheckContext:
    assert there.source is not None
    return there.source


def test_every_check_judges_the_cluster_that_it_speaks_of_and_finds_nothing():
    there = healthy_there()
    found = {True: judged(source(there)), False: judged(there)}
    assert troubles([*found[True], *found[False]]) == {}
    assert [one for both in found.values() for one in both if one.verdict is Verdict.UNTOLD] == []
    where = {side: {(one.check, one.cluster) for one in each} for side, each in found.items()}
    assert {name for name, _ in where[True] | where[False]} == {check.name for check in CHECKS}
    assert {cluster for _, cluster in where[True]} == {"", HERE}
    assert {cluster for _, cluster in where[False]} == {THERE}


TARGET_FAULTS: list[tuple[str, Verdict, Change]] = [
    ("topics", FAIL, with_kafka(topics={**KAFKA_THERE.topics, "out": Topic("UNKNOWN_TOPIC")})),
    ("durability", FAIL, with_topic("out", *LONE)),
    ("unclean-election", FAIL, with_topic("dead", unclean__leader__election__enable="true")),
    ("compaction", FAIL, with_topic("dead", cleanup__policy="compact")),
    ("dead-letter-retention", WARN, with_topic("dead", retention__ms="1000")),
    ("message-size", WARN, with_topic("out", max__message__bytes="1000")),
    ("output-timestamps", WARN, with_topic("out", message__timestamp__before__max__ms="1")),
    ("readers", WARN, with_kafka(readers=(ReaderAtRest("billing", "out", 0, 9, 10),))),
    ("offsets-retention", FAIL, with_broker(offsets__retention__minutes="60")),
    ("transaction-timeout", FAIL, with_broker(transaction__max__timeout__ms="9999")),
    ("transactional-id-expiry", WARN, with_broker(transactional__id__expiration__ms="60000")),
    ("broker-versions", FAIL, with_kafka(apis={"TxnOffsetCommit": 2})),
    ("rights", FAIL, with_kafka(ids={"shop/from/doctor": "AUTHORIZATION_FAILED: no"})),
    (
        "rights",
        FAIL,
        with_kafka(topics={**KAFKA_THERE.topics, "out": replace(topic(), operations=("WRITE",))}),
    ),
    (
        "rights",
        FAIL,
        with_kafka(group=None, untold={"consumer group": "GROUP_AUTHORIZATION_FAILED: no"}),
    ),
    ("kafka-plaintext", WARN, lambda _: healthy_there(**PLAIN)),
    ("kafka-verification", WARN, lambda _: healthy_there(**UNVERIFIED)),
]


@pytest.mark.parametrize(
    ("check", "verdict", "change"),
    [pytest.param(*one, id=f"{number}-{one[0]}") for number, one in enumerate(TARGET_FAULTS)],
)
def test_a_fault_of_the_cluster_of_the_outputs_is_named_with_it(check, verdict, change):
    there = change(healthy_there())
    found = judged(there)
    assert troubles(found) == {check: verdict}
    assert {one.cluster for one in found} == {THERE}
    assert troubles(judged(source(there))) == {}


@pytest.mark.parametrize(
    "change",
    [
        with_broker(transaction__max__timeout__ms="9999"),
        with_broker(transactional__id__expiration__ms="60000"),
        with_kafka(apis={"TxnOffsetCommit": 2}),
    ],
)
def test_nothing_of_transactions_is_asked_of_the_cluster_that_is_only_read(change):
    assert troubles(judged(change(source(healthy_there())))) == {}


def test_an_input_and_an_output_of_one_name_are_judged_as_what_they_are():
    environ = {"HAPAX_INPUT__TOPICS": "both", "HAPAX_OUTPUT__TOPIC": "both"}
    there = with_topic("both", cleanup__policy="compact")(healthy_there(**environ))
    here = with_topic("both", cleanup__policy="compact")(source(there))
    assert "compaction" in troubles(judged(here))
    assert "compaction" not in troubles(judged(there))


def test_offsets_that_expire_soon_cost_something_else_on_each_cluster():
    short = with_broker(offsets__retention__minutes="60")
    there = short(healthy_there())
    (lost,) = [one for one in judged(there) if one.check == "offsets-retention"]
    assert "loses its progress" in lost.saw
    (unseen,) = [one for one in judged(short(source(there))) if one.check == "offsets-retention"]
    assert "does not see that the progress on the cluster of the outputs is lost" in unseen.saw


def test_a_cluster_of_the_outputs_without_an_answer_is_one_failure_with_its_own_setting():
    gone = ClusterState(
        bootstrap=(replace(KAFKA_THERE.bootstrap[0], problem="connection refused"),),
        problem="none of the bootstrap addresses can be reached",
    )
    found = judged(healthy_there()._replace(kafka=gone))
    assert troubles(found) == {"bootstrap": FAIL}
    (said,) = [one.saw for one in found if one.verdict is FAIL]
    assert said == "HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS: there-0:9092: connection refused"
