import pytest

from hapax.core.identity import Identity
from hapax.core.plan import Destinations, Planner
from hapax.core.records import Output, Record
from hapax.operations.claims import ClaimSources

RECORDS = {
    "header:message-id": Record("in", 0, 5, None, b"{}", (("Message-Id", b"e-1"),)),
    "cloudevents": Record("in", 0, 5, None, b"{}", (("ce_source", b"/s"), ("ce_id", b"1"))),
    "key": Record("in", 0, 5, b"\xffkey", b"{}"),
    "json:/order/id": Record("in", 0, 5, None, b'{"order": {"id": 17}}'),
    "json:/a~1b/0": Record("in", 0, 5, None, '{"a/b": ["ä"]}'.encode()),
    "header:hapax-id": Record(
        "in", 0, 5, None, b"{}", (("hapax-id", b"up"), ("hapax-part", b"1/2"))
    ),
}


def output_of(record: Record, chain: list[str], output: Output) -> tuple[Record, bytes, bytes]:
    """Return what a pipeline with this chain writes, the id in it, and the claim it made."""
    found = Identity(chain).identify([record])
    planner = Planner(Destinations("app", "out", "dead"))
    (message,) = planner.plan([record], found.ids, [(output,)], {}).messages
    written = Record("out", 0, 0, message.key, message.value, tuple(message.headers))
    return written, dict(message.headers)["hapax-id"] or b"", found.claims[0]


@pytest.mark.parametrize("source", RECORDS)
def test_of_a_single_source_the_claim_is_known_whatever_the_transform_wrote(source):
    written, event_id, claim = output_of(RECORDS[source], [source], Output(b"other", key=b"other"))
    assert claim
    assert ClaimSources([source]).claim_of(written, event_id) == claim
    assert ClaimSources([source]).candidates(event_id) == {source: claim}


@pytest.mark.parametrize("source", ["header:message-id", "cloudevents", "key"])
def test_sources_that_are_headers_prove_themselves_or_rule_themselves_out(source):
    chain = ["cloudevents", "header:message-id", "key"]
    written, event_id, claim = output_of(RECORDS[source], chain, Output(b"other", key=b"other"))
    assert ClaimSources(chain).claim_of(written, event_id) == claim


@pytest.mark.parametrize(
    "chain", [["json:/order/id", "key"], ["json:/order/id", "header:message-id"]]
)
def test_an_id_that_two_sources_may_have_given_is_not_guessed(chain):
    record = Record("in", 0, 5, b"17", b'{"order": {"id": 17}}', (("message-id", b"17"),))
    written, event_id, claim = output_of(record, chain, Output(b"other"))
    assert claim
    assert ClaimSources(chain).claim_of(written, event_id) is None


def test_a_structured_event_may_have_lost_its_id_on_the_way():
    headers = (("content-type", b"application/cloudevents+json"),)
    record = Record("in", 0, 5, None, b'{"id": "1", "source": "/s"}', headers)
    for chain in (["cloudevents"], ["cloudevents", "key"]):
        written, event_id, claim = output_of(record, chain, Output(b"no json"))
        known = ClaimSources(chain).claim_of(written, event_id)
        assert known == (claim if len(chain) == 1 else None)


def test_an_id_that_a_source_could_never_give_has_no_claim_there():
    sources = ClaimSources(["cloudevents", "json:/id", "key"])
    assert set(sources.candidates(b"\xff")) == {"key"}
    assert set(sources.candidates(b"s\x00i")) == {"cloudevents", "json:/id", "key"}


def test_of_an_id_with_several_parts_the_claim_is_known():
    source = "json:/source/lsn+json:/op+key"
    record = Record("in", 0, 5, b"+%", b'{"source": {"lsn": 1}, "op": "r"}')
    written, event_id, claim = output_of(record, [source], Output(b"other", key=b"other"))
    assert event_id == b"1+r+%2B%25"
    assert ClaimSources([source]).claim_of(written, event_id) == claim
    assert ClaimSources([source, "key"]).claim_of(written, event_id) is None
    assert ClaimSources([source]).candidates(b"1+r") == {}
    assert ClaimSources(["header:a+header:b"]).claim_of(written, b"1+r") is None
