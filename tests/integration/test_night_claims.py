from tests.kit.night import Desk, ran
from tests.kit.routes import a_route
from tests.kit.topics import Given

route = a_route(redis=True, partitions=2)


def event(name: str, *headers: tuple[str, bytes], partition: int = 0) -> Given:
    return Given(name.encode(), b"k", (("message-id", name.encode()), *headers), partition)


def owner(desk: Desk, name: str) -> str:
    (claim,) = desk.ask("claims", "show", name)["claims"]
    assert claim["id_source"] == "header:message-id"
    assert 0 < claim["life_ms"] <= 2 * 86_400_000
    return str(claim["owner"])


def test_an_owner_is_shown_and_once_forgotten_the_event_is_new(route):
    route.write(event("e-1"), event("e-2"))
    ran(route)
    desk = Desk(route)
    assert owner(desk, "e-2") == f"{route.source}/0/1"
    assert "remembered for" in desk.type("claims", "show", "e-2").stdout
    forgotten = desk.ask("claims", "forget", "e-2", "--yes")
    assert [one["owner"] for one in forgotten["claims"]] == [f"{route.source}/0/1"]
    done = desk.type("claims", "show", "e-2")
    assert done.exit_code == 1
    assert done.stderr.startswith("no claim exists for e-2")
    route.write(event("e-1", partition=1), event("e-2", partition=1))
    ran(route)
    assert [record.value for record in route.outputs()] == [b"e-1", b"e-2", b"e-2"]


def test_claims_of_a_lost_redis_are_rebuilt_and_twins_are_dropped_as_before(route, sandbox):
    several = ("do", b'[{"value": "a"}, {"value": "b"}]')
    route.write(
        event("one"),
        event("two", several),
        event("poison", ("raise", b"1")),
        event("filtered", ("do", b"[]")),
        Given(b"without", b"k", (), 1),
    )
    ran(route)
    desk = Desk(route)
    before = {name: owner(desk, name) for name in ("one", "two", "poison")}
    written = len(route.outputs())
    sandbox.redis.flush()
    assert desk.type("claims", "show", "one").exit_code == 1
    told = desk.ask("claims", "rebuild", "--yes")
    assert told == {
        "records": 5,
        "older": 0,
        "claimed": 4,
        "elsewhere": 0,
        "untold": 0,
        "without_id": 1,
        "foreign": 0,
    }
    assert desk.ask("claims", "rebuild", "--yes") == told
    assert {name: owner(desk, name) for name in before} == before
    assert desk.type("claims", "show", "filtered").exit_code == 1
    route.write(*(event(name, partition=1) for name in before))
    ran(route)
    assert len(route.outputs()) == written
    assert "filtered are not known" in desk.type("claims", "rebuild", "--yes").stdout


def test_a_replay_does_not_take_the_claim_of_its_original(route, sandbox):
    route.write(event("poison", ("raise", b"1")))
    ran(route)
    desk = Desk(route)
    desk.ask("dead-letters", "replay", "--yes")
    ran(route, TRANSFORM=None)
    sandbox.redis.flush()
    told = desk.ask("claims", "rebuild", "--yes")
    assert (told["claimed"], told["elsewhere"], told["foreign"]) == (1, 1, 0)
    assert owner(desk, "poison") == f"{route.source}/0/0"


def test_what_is_older_than_ids_are_remembered_is_not_claimed(route, sandbox):
    old = Given(b"old", b"k", (("message-id", b"old"),), 0, 1_700_000_000_000)
    route.write(old, event("new"))
    ran(route)
    sandbox.redis.flush()
    desk = Desk(route)
    told = desk.ask("claims", "rebuild", "--yes")
    assert told["claimed"] == 1
    assert desk.type("claims", "show", "old").exit_code == 1
    told = desk.ask("claims", "rebuild", "--yes", "--since", "2023-01-01T00:00:00Z")
    assert told["claimed"] == 2
