from hypothesis import given, settings
from hypothesis import strategies as st

from hapax.claims.redis_layout import Layout, owner_texts, setnx
from hapax.claims.redis_native import Digests, Owners, moved, native_setnx
from tests.kit.native import Raw, few, plain

SALT = bytes(range(16))
PREFIX, DATE, NUMBERS = b"hapax{shop}\x01\x02", b"\x00\x07", {"orders": b"\x11\x22\x33"}


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    old = draw(st.integers(10, 20))
    new = draw(st.sampled_from((old, old + 1, old - 1)))
    return Layout(old, new, draw(st.integers(0, 1 << min(old, new))))


@given(records=plain, layout=layouts())
@settings(max_examples=few(200), deadline=None)
def test_commands_and_owners_of_native_records_are_those_of_a_list(stage, records, layout):
    for native, batch in stage.play(records, ["header:id", "key"]):
        digests, owners = Digests(native.claims, SALT), Owners(native, NUMBERS)
        texts = owner_texts(list(batch.records), NUMBERS)
        assert list(owners) == texts
        packed = native_setnx(PREFIX, layout, digests, owners, DATE)
        if packed is not None:
            assert packed == setnx(PREFIX, layout, list(digests), [DATE + text for text in texts])
        else:
            assert len({len(head) for head in owners.heads}) != 1


@given(records=plain, layout=layouts(), further=st.integers(0, 1 << 20))
@settings(max_examples=few(200), deadline=None)
def test_ids_that_moved_are_those_with_another_bucket(stage, records, layout, further):
    met = layout._replace(cursor=further % ((1 << min(layout.old, layout.new)) + 1))
    for native, _batch in stage.play(records, ["header:id", "key"]):
        digests = Digests(native.claims, SALT)
        changed = [i for i, one in enumerate(digests) if layout.bits(one) != met.bits(one)]
        if layout.old != layout.new:
            assert moved(digests, layout, met) == changed


def test_layouts_of_other_sizes_are_left_to_the_reference(stage):
    for native, _batch in stage.play([Raw(b"k", b"v")], ["key"]):
        assert moved(Digests(native.claims, SALT), Layout(14, 14, 0), Layout(14, 15, 3)) is None
