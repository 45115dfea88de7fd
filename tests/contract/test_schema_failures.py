"""What each failure of a registry means: an outage, a refusal, an id that it does not know."""

import threading
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from hapax.core.errors import ConfigurationError, Poison, SchemasUnavailableError
from hapax.core.formats import FormatOptions, RegistryOptions, Secret
from hapax.core.records import Record
from hapax.operations.doctor.check import CheckContext, Verdict
from hapax.operations.doctor.examination import judge
from hapax.schemas.codec import Decoder, Encoder, check_output
from hapax.schemas.lookup import Lookup
from tests.kit.doctor import healthy
from tests.kit.schema_registry import RegistryDouble
from tests.kit.waiting import await_

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
}
VALUE = b"\0\0\0\0\1\x02\x02a"
OTHER = b"\0\0\0\0\2\x02\x02a"


@pytest.fixture
def registry():
    with RegistryDouble() as registry:
        registry.add("orders-value", ORDER)
        yield registry


def options(registry: RegistryDouble, **more: Any) -> FormatOptions:
    told = RegistryOptions(**{"url": (registry.url,), "wait_s": 30.0, **more})
    return FormatOptions(input="avro", output="avro", topic="orders", registry=told)


def reading(registry: RegistryDouble, **more: Any) -> tuple[Decoder, Lookup]:
    formats = options(registry, **more)
    lookup = Lookup(formats.registry)
    return Decoder(formats, lookup, Any), lookup


def record(value: bytes) -> Record[Any]:
    return Record("orders", 0, 0, None, value)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 404, 200, 301])
def test_whatever_is_no_answer_of_a_registry_is_an_outage_and_ends_by_itself(registry, status):
    decoder, lookup = reading(registry)
    registry.status = status
    with pytest.raises(SchemasUnavailableError) as outage:
        decoder.decode(record(VALUE))
    assert not outage.value.refused
    asked = len(registry.asked)
    with pytest.raises(SchemasUnavailableError):  # nobody waits for the network again
        decoder.decode(record(VALUE))
    assert len(registry.asked) - asked <= 1  # that of the background
    registry.status = None
    await_(lambda: not lookup.missing("id:1"), 10, str)
    assert decoder.decode(record(VALUE)) == {"id": 1, "name": "a"}


def test_a_registry_that_is_dead_or_does_not_answer_is_an_outage(registry):
    decoder, lookup = reading(registry)
    registry.kill()
    with pytest.raises(SchemasUnavailableError, match="does not answer"):
        decoder.decode(record(VALUE))
    registry.start()
    await_(lambda: not lookup.missing("id:1"), 10, str)
    assert decoder.decode(record(VALUE))["name"] == "a"
    registry.hang = True
    slow, _lookup = reading(registry, timeout_ms=300)
    with pytest.raises(SchemasUnavailableError, match="timed out"):
        slow.decode(record(VALUE))


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_of_all_that_is_asked_is_no_outage(registry, status):
    decoder, lookup = reading(registry)
    decoder.decode(record(VALUE))
    registry.add("orders-value", {**ORDER, "doc": "2"})
    registry.status = status
    with pytest.raises(SchemasUnavailableError, match="HAPAX_REGISTRY__USER"):
        decoder.decode(record(OTHER))
    await_(lambda: not lookup.missing("id:2"), 10, str)
    with pytest.raises(SchemasUnavailableError, match="HAPAX_REGISTRY__USER") as refusal:
        decoder.decode(record(OTHER))
    assert refusal.value.refused


def given_up(lookup: Lookup, key: str, now_s: list[float]) -> bool:
    """Ask after a grace; True as well where the registry is said to refuse all."""
    now_s[0] += 61.0
    try:
        lookup.get(key)
    except SchemasUnavailableError as error:
        return error.refused
    except Poison:
        return True
    return False


@pytest.mark.parametrize("named_by", ["id", "subject"])
@pytest.mark.parametrize("answer", [None, (404, 40406), (401, 401), (403, 40301), (404, 404)])
@pytest.mark.parametrize("others", ["are known", "are listed", "come later"])
def test_what_is_unknown_or_denied_alone_is_waited_for_and_given_up_after_its_grace(
    registry, named_by, answer, others
):
    now_s = [0.0]
    formats = options(registry, after_grace="dead-letter", grace_ms=60_000)
    lookup = Lookup(formats.registry, monotonic=lambda: now_s[0])
    key = "id:7" if named_by == "id" else "subject:bills-value"
    if answer:
        registry.denied[key.partition(":")[2]] = answer
    if others == "are known":
        lookup.get("id:1")
    elif others == "come later":
        registry.denied["subjects"] = (403, 40301)
    with pytest.raises(SchemasUnavailableError) as first:
        lookup.get(key)
    assert not first.value.refused
    lookup.get("id:1")
    await_(lambda: given_up(lookup, key, now_s), 10, str)
    asked = len(registry.asked)
    for _ in range(3):
        with pytest.raises(Poison, match=f"does not know {key}, or denies it"):
            lookup.get(key)
    assert len(registry.asked) == asked  # not once for each record
    registry.denied.clear()
    registry.schemas.append({**registry.schemas[0], "id": 7, "subject": "bills-value"})
    now_s[0] += 61.0
    assert lookup.get(key).id == 7


def test_an_unknown_id_is_held_for_ever_where_that_is_the_policy(registry):
    registry.hidden.add(1)
    formats = options(registry, grace_ms=0)
    lookup = Lookup(formats.registry)
    decoder = Decoder(formats, lookup, Any)
    for _ in range(2):
        with pytest.raises(SchemasUnavailableError):
            decoder.decode(record(VALUE))
    registry.hidden.clear()
    await_(lambda: not lookup.missing("id:1"), 10, str)
    assert decoder.decode(record(VALUE))["id"] == 1


def test_a_start_with_the_cache_needs_no_registry_and_damage_is_told_and_fetched_again(
    registry, tmp_path
):
    cached = {"cache": str(tmp_path)}
    reading(registry, **cached)[0].decode(record(VALUE))
    check_output(options(registry, **cached), Lookup(options(registry, **cached).registry))
    registry.kill()
    decoder, lookup = reading(registry, **cached)
    assert decoder.decode(record(VALUE))["id"] == 1
    check_output(options(registry, **cached), lookup)
    with pytest.raises(SchemasUnavailableError):
        check_output(options(registry), Lookup(options(registry).registry))
    for file in tmp_path.rglob("*.schema"):
        content = bytearray(file.read_bytes())
        content[-3] ^= 1
        file.write_bytes(content)
    told: list[str] = []
    decoder, lookup = reading(registry, **cached)
    lookup.on_trouble = told.append
    with pytest.raises(SchemasUnavailableError):
        decoder.decode(record(VALUE))
    assert "is damaged, and fetched again" in told[0]
    registry.start()
    await_(lambda: not lookup.missing("id:1"), 10, str)
    registry.kill()
    assert reading(registry, **cached)[0].decode(record(VALUE))["id"] == 1


def test_a_missing_subject_is_told_before_the_start_and_registered_where_that_is_allowed(
    registry, tmp_path
):
    other = FormatOptions(output="avro", topic="bills", registry=options(registry).registry)
    with pytest.raises(ConfigurationError, match="bills-value"):
        check_output(other, Lookup(other.registry))
    file = tmp_path / "bill.avsc"
    file.write_text('{"type": "string"}')
    allowed = FormatOptions(
        output="avro",
        topic="bills",
        schema=str(file),
        registry=RegistryOptions(url=(registry.url,), auto_register=True),
    )
    lookup = Lookup(allowed.registry)
    check_output(allowed, lookup)
    value, _headers = Encoder(allowed, lookup).encode("x", None)
    assert value == b"\0\0\0\0\2\2x"


@pytest.mark.parametrize(
    ("subjects", "subject"),
    [("topic", "bills-value"), ("record", "shop.Bill"), ("topic-record", "bills-shop.Bill")],
)
def test_subjects_are_named_by_the_strategy(registry, tmp_path, subjects, subject):
    file = tmp_path / "bill.avsc"
    file.write_text('{"type": "record", "name": "shop.Bill", "fields": []}')
    told = RegistryOptions(url=(registry.url,), subjects=subjects)
    formats = FormatOptions(output="avro", topic="bills", schema=str(file), registry=told)
    assert Encoder(formats, Lookup(told)).key("bills").startswith(f"subject:{subject}\n")


def test_a_password_is_that_of_its_file_now_and_is_never_shown(registry, tmp_path):
    file = tmp_path / "password"
    file.write_text("first\n")
    formats = options(registry, user="me", password=Secret("s3cr3t", str(file)))
    assert "s3cr3t" not in repr(formats)
    Lookup(formats.registry).get("id:1")
    file.write_text("second\n")
    Lookup(formats.registry).get("id:1")
    assert registry.logins == ["Basic bWU6Zmlyc3Q=", "Basic bWU6c2Vjb25k"]


def test_a_redirect_is_an_outage_and_takes_no_login_to_another_address(registry):
    with RegistryDouble() as other:
        other.add("orders-value", ORDER)
        registry.status, registry.location = 302, other.url
        for login in ({"user": "me", "password": Secret("s3cr3t")}, {"token": Secret("s3cr3t")}):
            with pytest.raises(SchemasUnavailableError, match="302") as outage:
                reading(registry, **login)[0].decode(record(VALUE))
            assert not outage.value.refused
        assert len(registry.logins) == 2
        assert other.asked == []


def test_of_many_threads_one_asks(registry):
    _decoder, lookup = reading(registry)
    threads = [threading.Thread(target=lookup.get, args=("id:1",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert registry.asked == ["/schemas/ids/1"]


@pytest.fixture(scope="module")
def knowing():
    """A decoder that knows the schema, and whose registry is away."""
    with RegistryDouble() as double:
        double.add("orders-value", ORDER)
        formats = options(double, timeout_ms=30_000)
        lookup = Lookup(formats.registry)
        lookup.first("id:1")
    return Decoder(formats, lookup, Any)


@given(value=st.binary(max_size=40))
@settings(max_examples=300, deadline=None)
def test_bytes_that_cannot_be_decoded_are_poison_and_nothing_else(knowing, value):
    with suppress(Poison):  # by chance it may be an order
        assert knowing.decode(record(b"\0\0\0\0\1" + value)).keys() == {"id", "name"}
    with pytest.raises(Poison):
        knowing.decode(record(b"\2" + value))


def test_doctor_tells_a_registry_that_is_away_one_without_the_subject_and_one_that_takes_anything(
    registry,
):
    told = {"HAPAX_OUTPUT__FORMAT": "avro", "HAPAX_OUTPUT__TOPIC": "orders"}
    case = healthy(**told, HAPAX_REGISTRY__URL=registry.url)
    found = {one.check: one for one in judge(case)}["schema-registry"]
    assert found.verdict is Verdict.PASS, found
    assert "compatibility BACKWARD" in found.saw
    registry.compatibility = "NONE"
    assert _registry_verdict(case) is Verdict.WARN
    registry.schemas.clear()
    assert _registry_verdict(case) is Verdict.FAIL
    registry.kill()
    assert _registry_verdict(case) is Verdict.FAIL


def _registry_verdict(case: CheckContext) -> Verdict:
    return next(one.verdict for one in judge(case) if one.check == "schema-registry")
