"""Requests that were sent and never answered, as the plugin counts them (fast/src/requests.c).

The order of the calls is librdkafka's (2.16): a lost connection is DOWN first, then an error for
each request that was sent, then the same error for each that still waited to be sent.
"""

import ctypes
import os
import sys
from pathlib import Path

import pytest

from tests.kit import ended_clients, native_build, requests_hooks as hooks
from tests.kit.commands import output_of, run_captured

needs_compiler = pytest.mark.skipif(
    hooks.compiler() is None, reason="no C compiler on this machine"
)
pytestmark = needs_compiler

TRANSACTIONAL = ["Produce", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn"]
TRANSACTIONAL += ["EndTxn", "TxnOffsetCommit"]
NEVER_SENT = [hooks.TIMED_OUT_QUEUE, hooks.PURGE_QUEUE, hooks.RETRY]
LOST, TIME_IS_UP, GIVEN_UP = "the connection was lost", "its time was up", "it was given up"
STRESS = Path(__file__).parents[1] / "kit" / "requests_stress.c"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("requests")
    return ctypes.CDLL(
        str(hooks.compiled(folder, hooks.SOURCES / "requests.c", "-shared", "-fPIC"))
    )


@pytest.fixture
def requests(library):
    return hooks.Requests(library)


@pytest.fixture
def broker(requests):
    with hooks.BrokerThread(requests) as thread:
        yield thread


@pytest.fixture
def main(requests):
    """librdkafka's main thread: it sends nothing, and repeats what it is handed."""
    with hooks.BrokerThread(requests, "main") as thread:
        yield thread


def test_what_is_answered_is_no_doubt(requests, broker, main):
    for api in TRANSACTIONAL:
        broker.sent(api)
        assert requests.in_flight() == 1
        broker.ended(api)
        main.ended(api)
        assert requests.in_flight() == 0
    broker.became("DOWN")
    assert requests.doubts() == []


@pytest.mark.parametrize("api", TRANSACTIONAL)
def test_what_was_sent_when_its_connection_was_lost_is_a_doubt_and_only_one(
    requests, broker, main, api
):
    broker.sent(api)
    broker.became("DOWN")
    assert requests.doubts() == [hooks.Doubt(api, LOST, "TxnCoordinator")]
    broker.ended(api, hooks.TRANSPORT)
    main.ended(api, hooks.TRANSPORT)
    broker.became("DOWN")
    assert requests.doubts() == []
    assert requests.in_flight() == 0


def test_what_waited_to_be_sent_when_the_connection_was_lost_is_no_doubt(requests, broker):
    broker.became("DOWN")
    broker.ended("EndTxn", hooks.TRANSPORT)
    assert requests.doubts() == []
    broker.sent("Produce")
    broker.became("DOWN")
    for _ in range(3):  # one that was sent, two that waited
        broker.ended("Produce", hooks.TRANSPORT)
    assert requests.doubts() == [hooks.Doubt("Produce", LOST, "TxnCoordinator")]


@pytest.mark.parametrize(
    ("error", "loss"), [(hooks.TIMED_OUT, TIME_IS_UP), (hooks.PURGE_INFLIGHT, GIVEN_UP)]
)
def test_what_the_client_gives_up_on_a_living_connection_is_a_doubt(requests, broker, error, loss):
    broker.sent("EndTxn")
    broker.ended("EndTxn", error)
    broker.became("DOWN")
    assert requests.doubts() == [hooks.Doubt("EndTxn", loss, "TxnCoordinator")]


@pytest.mark.parametrize("error", NEVER_SENT)
def test_what_leaves_a_queue_unsent_is_no_doubt_and_hides_none(requests, broker, error):
    broker.ended("Produce", error)
    assert requests.doubts() == []
    broker.sent("Produce")
    broker.ended("Produce", error)  # another one, which still waited
    assert requests.in_flight() == 1
    broker.became("DOWN")
    assert len(requests.doubts()) == 1


def test_an_end_that_is_not_known_leaves_the_request_in_flight(requests, broker):
    broker.sent("EndTxn")
    broker.ended("EndTxn", hooks.BAD_MSG)
    assert requests.doubts() == []
    assert requests.in_flight() == 1


@pytest.mark.parametrize("api", ["Metadata", "Fetch"])
def test_requests_outside_of_transactions_are_no_doubt(requests, broker, api):
    broker.sent(api)
    broker.became("DOWN")
    broker.ended(api, hooks.TRANSPORT)
    assert requests.doubts() == []
    assert requests.downs() == 1


def test_a_connection_that_breaks_leaves_requests_of_others_in_flight(requests, broker):
    with hooks.BrokerThread(requests, "host:9092/1") as other:
        other.sent("Produce")
        broker.sent("EndTxn")
        broker.became("DOWN")
        assert [doubt.api for doubt in requests.doubts()] == ["EndTxn"]
        assert requests.in_flight() == 1
        other.ended("Produce")
        assert requests.in_flight() == 0


def test_states_on_the_way_up_count_for_nothing(requests, broker):
    broker.sent("EndTxn")
    for state in ("INIT", "TRY_CONNECT", "CONNECT", "APIVERSION_QUERY", "UP", "REAUTH"):
        broker.became(state)
    assert requests.downs() == 0
    assert requests.in_flight() == 1


def test_of_many_doubts_the_youngest_are_kept(requests, broker):
    for _ in range(20):
        broker.sent("Produce")
        broker.became("DOWN")
    broker.sent("EndTxn")
    broker.became("DOWN")
    doubts = requests.doubts()
    assert [doubt.api for doubt in doubts] == [*["Produce"] * 7, "EndTxn"]
    assert requests.doubts() == []


def test_two_clients_know_nothing_of_each_other(library):
    first, second = hooks.Requests(library), hooks.Requests(library)
    with hooks.BrokerThread(first) as one, hooks.BrokerThread(second) as two:
        one.sent("EndTxn")
        two.became("DOWN")
        two.ended("EndTxn", hooks.TRANSPORT)
        assert first.doubts() == second.doubts() == []
        assert first.in_flight() == 1


def test_a_long_name_of_a_broker_is_cut(requests):
    with hooks.BrokerThread(requests, "b" * 300) as broker:
        broker.sent("EndTxn")
        broker.became("DOWN")
    assert requests.doubts() == [hooks.Doubt("EndTxn", LOST, "b" * 63)]


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_threads_of_brokers_and_readers_at_once_are_clean_under(tmp_path, sanitizer):
    options = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all")
    ran = run_captured([str(hooks.compiled(tmp_path, STRESS, *options))], timeout=120)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "sent 40000, lost 20000, answered 20000\n"


SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.mark.deep  # needs a compiler
@pytest.mark.skipif(not native_build.buildable(), reason="no C compiler, or no headers of Python")
def test_a_client_that_ends_with_requests_in_flight_leaves_no_call_to_freed_memory(tmp_path):
    native_build.build(tmp_path, "-O1", "-g", *SANITIZED)
    libraries = [
        output_of([str(hooks.compiler()), f"-print-file-name={name}"]).strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = os.environ | {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own
    }
    command = [sys.executable, str(Path(ended_clients.__file__)), str(tmp_path)]
    assert output_of(command, timeout=120, env=environment) == "clean\n"
