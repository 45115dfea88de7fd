#!/usr/bin/env bash
# OpenTelemetry's instrumentation of confluent-kafka (0.66b1, with 2.16.1) appends its traceparent to the
# list that produce() was given, and leaves those that are in it: a list of headers that is kept for
# several messages grows with each, and a service that passes the headers of its input on adds one a
# hop. Its consumer takes the first of them, so all records of one list, and all that follows them,
# are linked to the trace of the first. The list of the caller is changed as well.
# Expected: one traceparent in a record, of the span that produced it.
# Seen, three messages in three traces, with one list of headers, and passed on:
#   message 0: 1 traceparent, linked to trace 0; passed on: 2, linked to trace 0
#   message 1: 2 traceparents, linked to trace 0; passed on: 3, linked to trace 0
#   message 2: 3 traceparents, linked to trace 0; passed on: 4, linked to trace 0
#   headers of the caller: 4
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1 opentelemetry-sdk==1.45.1 opentelemetry-instrumentation-confluent-kafka==0.66b1
cat > "$work/ask.py" <<'END_OF_PROGRAM'
from confluent_kafka import Consumer, Producer, TopicPartition
from opentelemetry import trace
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

class Links(SpanProcessor):
    """Keeps the traces that each span of a consumer is linked to."""

    def __init__(self):
        self.seen = []

    def on_start(self, span, parent_context=None):
        if span.name.endswith(" process"):
            self.seen.append([link.context.trace_id for link in span.links])

links = Links()
provider = TracerProvider()
provider.add_span_processor(links)
tracer = provider.get_tracer("ask")
instrumentor = ConfluentKafkaInstrumentor()
quiet = {"log_level": 0}
plain = Producer({"bootstrap.servers": "-", "test.mock.num.brokers": 1, **quiet})  # librdkafka's own broker
(broker,) = plain.list_topics("orders", timeout=30).brokers.values()
brokers = {"bootstrap.servers": f"{broker.host}:{broker.port}", **quiet}
producer = instrumentor.instrument_producer(plain, tracer_provider=provider)

def read(topic):
    """Return the count of traceparents of each of three records, the traces linked to, the records."""
    links.seen.clear()
    plain_consumer = Consumer({**brokers, "group.id": topic, "auto.offset.reset": "earliest"})
    plain_consumer.assign([TopicPartition(topic, 0)])
    consumer = instrumentor.instrument_consumer(plain_consumer, tracer_provider=provider)
    records = []
    while len(records) < 3:
        record = consumer.poll(30)
        assert record is not None, "no record arrived"
        if record.error() is None:
            records.append(record)
    consumer.close()
    counts = [[name for name, _ in record.headers()].count("traceparent") for record in records]
    return counts, [one[0] for one in links.seen], records

headers, traces = [("source", b"shop")], []
for number in range(3):
    with tracer.start_as_current_span("request") as span:
        traces.append(span.get_span_context().trace_id)
        producer.produce("orders", str(number), headers=headers, partition=0)
producer.flush(30)
counts, linked, records = read("orders")
for record in records:
    with tracer.start_as_current_span("forward"):
        producer.produce("copies", record.value(), headers=record.headers(), partition=0)
producer.flush(30)
more, still, _ = read("copies")
for number in range(3):
    s = "s"[: counts[number] - 1]
    print(f"message {number}: {counts[number]} traceparent{s}, linked to trace {traces.index(linked[number])};"
          f" passed on: {more[number]}, linked to trace {traces.index(still[number])}")
print(f"headers of the caller: {len(headers)}")
assert (counts, more, len(headers)) == ([1, 2, 3], [2, 3, 4], 4), "it has changed"
assert linked == still == [traces[0]] * 3, "it has changed"
END_OF_PROGRAM
timeout 200 "$work/venv/bin/python" "$work/ask.py"
