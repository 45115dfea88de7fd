"""How long a call waits for a registry, and what a registry's odd answers and certificates mean."""

import ssl
from typing import Any

import pytest

from hapax.core.errors import ConfigurationError, SchemasUnavailableError
from hapax.core.formats import FormatOptions, RegistryOptions
from hapax.core.records import Record
from hapax.sandbox.guard import Authority
from hapax.schemas.codec import Decoder, check_output
from hapax.schemas.lookup import Lookup
from hapax.schemas.registry import Registry, Schema
from tests.kit.avro_orders import ORDER
from tests.kit.schema_registry import RegistryDouble
from tests.kit.waiting import await_

HOLDER = {"type": "record", "name": "Holder", "fields": [{"name": "order", "type": "Order"}]}
REFERENCE = {"name": "Order", "subject": "order", "version": 1}
NOTHING: list[dict[str, Any]] = [{}, {"schema": None}, {"schema": 7}]


@pytest.fixture
def registry():
    with RegistryDouble() as registry:
        yield registry


def lookup(registry: RegistryDouble, **more: Any) -> Lookup:
    return Lookup(RegistryOptions(**{"url": (registry.url,), "wait_s": 30.0, **more}))


def test_a_call_waits_a_fraction_of_an_answer_and_the_next_ones_not_at_all(registry):
    ids = [registry.add("orders-value", ORDER | {"doc": str(number)}) for number in range(5)]
    registry.hang = True
    waiting = lookup(registry, timeout_ms=30_000, wait_s=0.05)
    with pytest.raises(SchemasUnavailableError, match=r"has not answered within 0\.05 s"):
        waiting.get("id:1")
    for number in ids[1:]:
        with pytest.raises(SchemasUnavailableError, match="is slow"):
            waiting.get(f"id:{number}")
    assert all(waiting.missing(f"id:{number}") for number in ids)
    registry.kill()
    registry.start()
    await_(lambda: not any(waiting.missing(f"id:{number}") for number in ids), 10, str)
    assert [waiting.get(f"id:{number}").id for number in ids] == ids


def test_an_answer_that_comes_after_the_wait_is_taken(registry):
    registry.add("orders-value", ORDER)
    registry.slow_s = 0.15
    waiting = lookup(registry, wait_s=0.05)
    with pytest.raises(SchemasUnavailableError):
        waiting.get("id:1")
    await_(lambda: not waiting.missing("id:1"), 10, str)
    assert waiting.get("id:1").id == 1


@pytest.mark.parametrize("nothing", NOTHING)
def test_a_reference_that_is_answered_with_no_schema_is_an_outage_and_ends_by_itself(
    registry, monkeypatch, nothing
):
    registry.add("order", ORDER)
    holder = registry.add("holders-value", HOLDER, references=[REFERENCE])
    with monkeypatch.context() as odd:
        odd.setattr(registry, "_of_subject", lambda *_asked: (200, nothing))
        waiting = lookup(registry)
        with pytest.raises(SchemasUnavailableError, match="what is no schema"):
            waiting.get(f"id:{holder}")
        asked = len(registry.asked)
        await_(lambda: len(registry.asked) > asked + 1, 10, str)  # asked in the background
    await_(lambda: not waiting.missing(f"id:{holder}"), 10, str)
    for key in (f"id:{holder}", f"guid:{registry.guid(holder)}", "subject:holders-value"):
        assert [one.name for one in waiting.get(key).references] == ["Order"]


def test_an_answer_that_breaks_its_reader_is_an_outage_that_is_named_and_ends_by_itself(
    registry, monkeypatch
):
    registry.add("orders-value", ORDER)
    times: list[int] = []

    def broken(_registry: Registry, number: int) -> Schema:
        times.append(number)
        raise RuntimeError("odd")

    with monkeypatch.context() as odd:
        odd.setattr(Registry, "by_id", broken)
        waiting = lookup(registry)
        with pytest.raises(SchemasUnavailableError, match=r"id:1 .*RuntimeError\('odd'\)"):
            waiting.get("id:1")
        await_(lambda: len(times) > 2, 10, str)  # asked in the background, more than once
    await_(lambda: not waiting.missing("id:1"), 10, str)
    assert waiting.get("id:1").id == 1


@pytest.mark.parametrize("nothing", NOTHING)
def test_a_descriptor_that_is_answered_with_no_text_is_an_outage(registry, monkeypatch, nothing):
    number = registry.add("orders-value", "message Order {}", "PROTOBUF")
    whole = registry.found

    def found(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return (200, nothing) if "format" in path else whole(path, body)

    monkeypatch.setattr(registry, "found", found)
    formats = FormatOptions(input="protobuf", registry=RegistryOptions(url=(registry.url,)))
    decoder = Decoder(formats, Lookup(formats.registry), Any)
    record: Record[Any] = Record("orders", 0, 0, None, b"\0" + number.to_bytes(4, "big") + b"\0")
    with pytest.raises(SchemasUnavailableError, match="what is no schema") as outage:
        decoder.decode(record)
    assert not outage.value.refused


def test_an_empty_descriptor_is_none_and_no_fault_of_the_record(registry):
    number = registry.add("orders-value", "message Order {}", "PROTOBUF", serialized="")
    assert lookup(registry).get(f"id:{number}").serialized is None


def test_files_of_tls_that_have_changed_are_read_and_those_that_cannot_be_are_told_at_the_start(
    tmp_path,
):
    authority, stranger = Authority(tmp_path / "known"), Authority(tmp_path / "stranger")
    shown = authority.issue("registry")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.certificate_file, shown.key_file)
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(stranger.ca_file.read_bytes())
    with RegistryDouble(context) as registry:
        known = registry.add("orders-value", ORDER)
        looking = lookup(registry, ca_file=str(trusted))
        with pytest.raises(SchemasUnavailableError, match="certificate is not trusted") as refusal:
            looking.get(f"id:{known}")
        assert refusal.value.refused
        trusted.unlink()
        with pytest.raises(SchemasUnavailableError, match=r"ca\.pem") as outage:
            looking.get(f"id:{known}")
        assert not outage.value.refused  # it may just be written
        formats = FormatOptions(
            input="avro", registry=RegistryOptions(url=(registry.url,), ca_file=str(trusted))
        )
        with pytest.raises(ConfigurationError, match="HAPAX_REGISTRY__CA_FILE"):
            check_output(formats, looking)
        trusted.write_bytes(authority.ca_file.read_bytes())
        await_(lambda: not looking.missing(f"id:{known}"), 10, str)
        assert looking.get(f"id:{known}").id == known
