from typing import Any

from tests.kit.night import Desk, ran, settle
from tests.kit.routes import a_route
from tests.kit.topics import Given, transaction

route = a_route(redis=True)


def event(name: str, *headers: tuple[str, bytes]) -> Given:
    return Given(name.encode(), b"k", (("message-id", name.encode()), *headers))


def traced(desk: Desk, *words: str) -> dict[str, Any]:
    (one,) = desk.ask("trace", *words)["records"]
    assert isinstance(one, dict)
    return one


def test_every_fate_of_a_record_is_told_by_place_and_by_id(route):
    route.write(
        event("plain"),
        event("split", ("do", b'[{"value": "a"}, {"value": "b"}]')),
        event("poison", ("raise", b"1")),
        event("none", ("do", b"[]")),
        event("plain", ("second", b"1")),
        Given(b"without id"),
    )
    ran(route)
    route.write(event("late"))
    desk = Desk(route)
    verdicts = [traced(desk, f"{route.source}/0/{at}")["verdict"] for at in range(6)]
    assert verdicts[:3] == [
        "done: 1 output",
        "done: 2 outputs",
        "dead letter: ValueError: the record says so",
    ]
    assert verdicts[3].startswith("no effect was found: filtered")
    assert verdicts[4] == f"duplicate: its id belongs to {route.source}/0/0, which was seen first"
    assert verdicts[5] == "done: 1 output"
    late = traced(desk, "late")
    assert (late["verdict"], late["committed"]) == ("waiting: not processed yet", False)
    split = traced(desk, "split")
    assert [effect["part"] for effect in split["effects"]] == ["1/2", "2/2"]
    assert split["claims"] == {"header:message-id": f"{route.source}/0/1"}
    both = desk.ask("trace", "plain", "--since", "1h")["records"]
    assert [one["verdict"].split(":")[0] for one in both] == ["done", "duplicate"]


def test_an_output_and_a_dead_letter_lead_back_to_their_record(route):
    route.write(event("plain"), event("poison", ("raise", b"1")))
    ran(route)
    desk = Desk(route)
    assert traced(desk, f"{route.target}/0/0")["record"] == f"{route.source}/0/0"
    letter = traced(desk, f"{route.dead_letters}/0/0")
    assert (letter["record"], letter["id"]) == (f"{route.source}/0/1", "poison")
    shown = desk.type("trace", f"{route.dead_letters}/0/0").stdout
    assert f"dead       {route.dead_letters}/0/0" in shown
    assert "verdict    dead letter: ValueError" in shown


def test_effects_in_a_transaction_that_is_open_are_under_way(route):
    route.write(event("plain"))
    stamp = [("hapax-id", b"plain"), ("hapax-source", f"{route.source}/0/0".encode())]
    desk = Desk(route)
    with transaction(route.bootstrap) as producer:
        producer.produce(route.target, b"hidden", headers=stamp)  # type: ignore[arg-type]
        assert producer.flush(60) == 0
        one = traced(desk, f"{route.source}/0/0")
        assert one["effects"][0]["visible"] is False
        assert one["verdict"].startswith("in progress")
        producer.abort_transaction(60)
    settle(route)
    assert traced(desk, f"{route.source}/0/0")["verdict"] == "waiting: not processed yet"


def test_of_a_record_that_is_deleted_its_effects_still_tell(route, sandbox):
    route.write(event("plain"), event("poison", ("raise", b"1")), event("late"))
    ran(route)
    sandbox.delete_records(route.source, 0, before_offset=2)
    desk = Desk(route)
    plain, poison = traced(desk, "plain"), traced(desk, f"{route.source}/0/1")
    assert (plain["there"], plain["record"]) == (False, f"{route.source}/0/0")
    assert plain["verdict"] == "done: 1 output"
    assert plain["claims"] == {"header:message-id": f"{route.source}/0/0"}
    assert (poison["there"], poison["id"]) == (False, "poison")
    assert poison["verdict"].startswith("dead letter")


def test_what_is_not_found_is_said_with_an_exit_code(route):
    route.write(Given(b"stray", b"k"))
    desk = Desk(route)
    unknown = desk.type("trace", "no-such-id")
    assert unknown.exit_code == 1
    assert "no record with the id no-such-id was found" in unknown.stderr
    beyond = desk.type("trace", f"{route.source}/0/99")
    assert beyond.exit_code == 1
    assert f"does not exist: it is beyond the end of {route.source}/0, which is 1" in beyond.stderr
    assert desk.type("trace", f"{route.source}/7/0").exit_code == 1
    assert desk.type("trace", f"{route.target}/0/0").exit_code == 1
