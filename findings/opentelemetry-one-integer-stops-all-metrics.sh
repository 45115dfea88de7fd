#!/usr/bin/env bash
# An integer that OTLP cannot hold, such as 2**64 - 1, by which a limit says "none", or a bool in a
# single gauge stops the whole export of OpenTelemetry for Python 1.45.1: no metric of the process
# arrives any more, as the gauge keeps its value, and force_flush() returns True. As the body of a log
# record, or inside it, it takes all records of the batch with it, up to 512, of which none is sent again.
# As an attribute it costs that attribute alone, and a float of that size arrives.
# Expected: what cannot be sent is left out, and the rest arrives; or force_flush() returns False.
# Seen, of the counter records and the gauge limit, and of three log records of which one is second:
#   limit 9223372036854775807:  records, limit; flushed: True
#   limit 18446744073709551615: nothing; flushed: True
#   limit True:                 nothing; flushed: True
#   limit 1.8446744073709552e+19: records, limit; flushed: True
#   body {'id': 5}:                    3 log records; flushed: True
#   body {'id': 9223372036854775808}:  0 log records; flushed: True
#   attribute id: 9223372036854775808: 3 log records; flushed: True
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet opentelemetry-sdk==1.45.1 opentelemetry-exporter-otlp-proto-http==1.45.1
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import gzip, http.server, logging, threading
from opentelemetry._logs import LogRecord
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

logging.disable(logging.CRITICAL)
arrived = []

class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        if self.path == "/metrics":
            request = ExportMetricsServiceRequest.FromString(content)
            scopes = [scope for one in request.resource_metrics for scope in one.scope_metrics]
            arrived.extend(metric.name for scope in scopes for metric in scope.metrics)
        else:
            request = ExportLogsServiceRequest.FromString(content)
            scopes = [scope for one in request.resource_logs for scope in one.scope_logs]
            arrived.extend(record for scope in scopes for record in scope.log_records)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"

def metrics(limit):
    arrived.clear()
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{url}/metrics"), export_interval_millis=10**7)
    meter = (provider := MeterProvider([reader], shutdown_on_exit=False)).get_meter("ask")
    meter.create_counter("records").add(1)
    meter.create_gauge("limit").set(limit)
    flushed = provider.force_flush(10_000)
    seen = ", ".join(arrived) or "nothing"
    print(f"{f'limit {limit}:':27} {seen}; flushed: {flushed}")
    return seen, flushed

def logs(body, attributes=None):
    arrived.clear()
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(f"{url}/logs")))
    for each in (LogRecord(body="first"), LogRecord(body=body, attributes=attributes), LogRecord(body="third")):
        provider.get_logger("ask").emit(each)
    flushed = provider.force_flush(10_000)
    what = f"attribute id: {attributes['id']}:" if attributes else f"body {body}:"
    print(f"{what:34} {len(arrived)} log records; flushed: {flushed}")
    return len(arrived), flushed

both = "records, limit"
seen = [metrics(limit) for limit in (2**63 - 1, 2**64 - 1, True, 2.0**64)]
assert seen == [(both, True), ("nothing", True), ("nothing", True), (both, True)], "it has changed"
seen = [logs({"id": 5}), logs({"id": 2**63}), logs("second", {"id": 2**63})]
assert seen == [(3, True), (0, True), (3, True)], "it has changed"
server.shutdown()
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py"
