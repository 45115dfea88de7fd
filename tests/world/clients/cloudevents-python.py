"""The CloudEvents SDK for Python: its API of today (core), and that of version 1."""

import base64
import json
import sys
from datetime import datetime

from cloudevents.core.bindings import kafka
from cloudevents.core.v1.event import CloudEvent
from cloudevents.v1.http import CloudEvent as OldEvent
from cloudevents.v1.kafka import to_binary, to_structured


def text(content):
    content = content.encode() if isinstance(content, str) else content
    return None if content is None else base64.b64encode(content).decode()


asked = json.loads(sys.argv[2])
attributes, data = asked["attributes"], asked["data"]
event = CloudEvent({**attributes, "time": datetime.fromisoformat(attributes["time"])}, data)
old = OldEvent(attributes, data)
made = {
    "core binary": kafka.to_binary_event(event),
    "core structured": kafka.to_structured_event(event),
    "v1 binary": to_binary(old),
    "v1 structured": to_structured(old),
}
for form, one in made.items():
    headers = [[name, text(value)] for name, value in dict(one.headers).items()]
    print(json.dumps({"form": form, "k": text(one.key), "v": text(one.value), "h": headers}))
