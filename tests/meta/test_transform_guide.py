"""The examples of docs/transforms.md run, in memory, as their first lines say."""

from __future__ import annotations

import http.server
import threading
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pytest

from hapax.core.interrupt import Interrupt
from hapax.core.record_path import Batch
from hapax.core.records import Output, Record
from hapax.core.results import Failure
from hapax.engines.overlapping_calls import GatheredCalls, make_calls
from hapax.processing.call_window import CallLimits
from hapax.processing.transform import TransformForm, form_of
from hapax.settings import load_settings
from tests.kit.killers import table
from tests.meta.statements import ROOT
from tests.meta.test_docs import EXAMPLE, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.core.results import Result
    from hapax.settings import Settings


def test_what_each_fault_of_an_attempt_comes_to_is_the_table_that_tests_play():
    assert f"\n{table()}\n" in GUIDE


GUIDE = (ROOT / "docs/transforms.md").read_text()
ORDER = b'{"id": "a-1", "lines": [{"price": 250, "count": 2}, {"price": 1, "count": 1}]}'
RECORDS = [
    Record("orders", number % 2, number, b"k-%d" % (number % 3), ORDER, event_id=b"a-%d" % number)
    for number in range(10)
]
RECORDS.append(Record("orders", 0, 10, None, ORDER))


class Example(NamedTuple):
    """One block: the settings of its first line, and what they name."""

    settings: Settings
    transform: Any

    @property
    def form(self) -> TransformForm:
        return form_of(self.transform)

    def answers(self, records: list[Record]) -> list[Result | None]:
        """Return what becomes of records, with as many calls at once as the example says."""
        call = self.settings.call
        calls = make_calls(
            self.form,
            CallLimits(concurrency=call.concurrency, records_max=call.records_max, attempts_max=1),
        )
        calls.open()
        try:
            return GatheredCalls(calls).apply_all(Batch(records), Interrupt(), {})
        finally:
            calls.close()


@pytest.fixture
def prices(monkeypatch: pytest.MonkeyPatch) -> Iterator[Prices]:
    with Prices() as service:
        monkeypatch.setenv("PRICES_URL", service.url)
        yield service


def examples() -> dict[str, str]:
    """Return the blocks by the name that their first line gives."""
    found = [block for block in blocks(GUIDE, "python") if block.startswith(EXAMPLE)]
    return {block.split()[1].rpartition(":")[2]: block for block in found}


def example(name: str) -> Example:
    block = examples()[name]
    words = block.partition("\n")[0].removeprefix("# ").split()
    given = dict(word.split("=", 1) for word in words)
    more = {
        "HAPAX_APP": "orders",
        "HAPAX_KAFKA__BOOTSTRAP_SERVERS": "localhost:9092",
        "HAPAX_INPUT__TOPICS": "orders",
        "HAPAX_OUTPUT__TOPIC": "orders-out",
    }
    found: dict[str, Any] = {"__name__": "pipeline"}
    exec(compile(block, name, "exec"), found)  # noqa: S102 - the pages are ours
    return Example(load_settings(given | more), found[name])


def test_the_guide_has_an_example_of_each_kind_of_form(prices):
    assert prices.keys == []
    forms = {name: example(name).form for name in examples()}
    assert {name for name, form in forms.items() if form.context} == {"priced"}
    assert {name for name, form in forms.items() if form.lists} == {"Scores"}
    assert {name for name, form in forms.items() if form.setup} == {"Scores"}
    assert {name for name, form in forms.items() if form.plain} == {"price", "pack"}


@pytest.mark.parametrize("name", ["priced", "price"])
def test_the_examples_that_ask_a_service_send_the_id_of_each_record(prices, name):
    assert example(name).answers(RECORDS) == [(Output(ORDER + b" 250"),)] * len(RECORDS)
    assert sorted(prices.keys) == sorted(record.id.hex() for record in RECORDS)
    assert bytes.fromhex(prices.keys[-1]) in {record.id for record in RECORDS}


def test_the_example_of_a_model_answers_for_each_record_and_refuses_what_it_cannot_read():
    unread = Record("orders", 0, 11, b"k", b"no order")
    answers = example("Scores").answers([*RECORDS, unread])
    assert answers[:-1] == [(Output(b"501.000"),)] * len(RECORDS)
    assert isinstance(answers[-1], Failure)
    assert answers[-1].text.startswith("no lines to score: ")


def test_the_example_that_computes_in_c_answers():
    (first, *_rest) = example("pack").answers(RECORDS)
    assert isinstance(first, tuple)
    assert zlib.decompress(first[0].value or b"") == ORDER


class Prices:
    """Answers each POST with its body and a price; ``keys``: the idempotency keys that came."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        keys = self.keys

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                keys.append(self.headers["Idempotency-Key"])
                body = self.rfile.read(int(self.headers["Content-Length"])) + b" 250"
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_words: object) -> None:
                """Nothing: the output is that of the tests."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
