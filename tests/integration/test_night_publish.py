import pytest

from tests.kit.night import Desk
from tests.kit.routes import a_route
from tests.kit.topics import read_back

LINES = '{"order": {"id": 7}, "who": "a"}\n\n{"order": {"id": 8}, "who": "b"}\n'

route = a_route()


@pytest.mark.parametrize("how", [(), ("--transactional",)], ids=["plain", "transactional"])
def test_lines_are_published_with_their_ids_and_known_to_be_there(route, tmp_path, how):
    file = tmp_path / "orders.jsonl"
    file.write_text(LINES)
    pointers = ("--id-pointer", "/order/id", "--key-pointer", "/who", "--header", "from=desk")
    told = Desk(route).ask("publish", str(file), *pointers, *how)
    assert told == {"topic": route.source, "published": 2, "failed": 0, "reasons": {}}
    found = read_back(route.bootstrap, route.source)
    assert [record.key for record in found] == [b"a", b"b"]
    assert found[0].headers == (("from", b"desk"), ("message-id", b"7"))
    assert [record.value for record in found] == [
        line.encode() for line in LINES.split("\n") if line
    ]


def test_standard_input_is_read_and_every_line_has_an_id_of_its_own(route):
    assert Desk(route).ask("publish", given="a\nb\n")["published"] == 2
    found = read_back(route.bootstrap, route.source)
    assert [record.value for record in found] == [b"a", b"b"]
    assert len({dict(record.headers)["message-id"] for record in found}) == 2


@pytest.mark.parametrize(
    ("how", "there"), [((), 1), (("--transactional",), 0)], ids=["plain", "transactional"]
)
def test_a_line_that_cannot_be_published_ends_it(route, how, there):
    given = '{"id": 1}\nnonsense\n{"id": 2}\n'
    done = Desk(route).type("publish", "--id-pointer", "/id", *how, given=given)
    assert done.exit_code == 1
    assert "line 2 is not JSON" in done.stderr
    assert len(read_back(route.bootstrap, route.source)) == there


def test_what_the_broker_refuses_is_counted_and_fails(route, sandbox):
    small = f"{route.app}-small"
    sandbox.create_topic(small, 1, {"max.message.bytes": "200"})
    given = f"{'x' * 1000}\n"
    done = Desk(route).type("publish", "--topic", small, given=given)
    assert done.exit_code == 1
    assert done.stdout == f"0 published to {small}\n"
    assert "MSG_SIZE_TOO_LARGE" in done.stderr
    assert "1 records were not delivered" in done.stderr
    unknown = Desk(route).type("publish", "--topic", "no-such-topic", given="a\n")
    assert unknown.exit_code == 3
    assert "no-such-topic does not exist" in unknown.stderr
