import pytest

from hapax.core.committed_metadata import CommittedMetadata, informative
from hapax.core.offset_commit import GroupOffset


@pytest.mark.parametrize(
    "facts",
    [
        CommittedMetadata(),
        CommittedMetadata(topic_id="AbC-_0123456789abcdefg"),
        CommittedMetadata("topic", "cluster", 12, 2, 9_223_372_036_854_775_807),
        CommittedMetadata(deaths=1, until=0),
        CommittedMetadata("topic", "cluster", elsewhere="another-cluster"),
    ],
)
def test_what_was_written_is_read(facts):
    assert CommittedMetadata.decode(facts.encode()) == facts


def test_nothing_to_say_is_the_empty_text_that_other_tools_write_too():
    assert CommittedMetadata().encode() == ""


def test_metadata_of_earlier_versions_is_read():
    assert CommittedMetadata.decode("hapax topic=of-before") == CommittedMetadata("of-before")


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "somebody else's",
        "hapax1 query inputs",
        "hapaxtopic=a",
        "hapax",
        "hapax deaths=-1 until=x began=99999999999999999999 topic= cluster",
        "hapax deaths=٣ began=²",
    ],
)
def test_a_text_of_another_origin_says_nothing(text):
    assert CommittedMetadata.decode(text) == CommittedMetadata()


def test_words_of_a_later_version_are_passed_over():
    assert CommittedMetadata.decode("hapax color=red topic=a") == CommittedMetadata("a")


def test_an_offset_that_only_informs_keeps_its_ids_and_names_where_the_progress_is():
    text = CommittedMetadata("topic", "cluster", began=3).encode()
    offset = informative(GroupOffset("in", 0, 7, text, 2), "there")
    assert offset == GroupOffset("in", 0, 7, f"{text} elsewhere=there", 2)
    assert informative(GroupOffset("in", 0, 7), None).metadata == "hapax elsewhere=unnamed"
