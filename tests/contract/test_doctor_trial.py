"""The trial of a transactional id on a real broker: it says what is asked, and fences nobody."""

from hapax.kafka.admin.cluster import check_transactional_id_acl
from tests.kit.topics import read_back, transaction


def test_the_owner_of_a_transactional_id_commits_after_its_trial(sandbox, unique):
    name, topic = unique("owner"), unique("trial")
    sandbox.create_topic(topic)
    servers = sandbox.bootstrap_servers
    with transaction(servers, name) as owner:
        owner.produce(topic, b"before")
        owner.flush(60)
        assert check_transactional_id_acl({"bootstrap.servers": servers}, name) == ""
        owner.produce(topic, b"after")
        owner.commit_transaction(60)
    assert [record.value for record in read_back(servers, topic)] == [b"before", b"after"]
