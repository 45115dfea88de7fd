from hapax.sandbox.broker import copy_formatted, is_formatted, keep_formatted, new_id

IDS = "#\n#Fri Nov 27 04:43:19 UTC 2026\nnode.id=1\ndirectory.id=ours\nversion=1\ncluster.id=old\n"


def test_a_copy_has_the_ids_that_it_is_given_and_a_directory_id_of_its_own(tmp_path):
    made, template = tmp_path / "made", tmp_path / "template"
    made.mkdir()
    (made / "meta.properties").write_text(IDS)
    (made / "bootstrap.checkpoint").write_bytes(b"features")
    assert not is_formatted(template)
    keep_formatted(made, template)
    keep_formatted(made, template)  # another process was quicker
    assert [path.name for path in tmp_path.iterdir() if path != made] == ["template"]

    copies = [tmp_path / "1" / "data", tmp_path / "2" / "data"]
    for number, data in enumerate(copies):
        copy_formatted(template, data, {"cluster.id": "new", "node.id": number})
        assert is_formatted(data)
        assert (data / "bootstrap.checkpoint").read_bytes() == b"features"

    lines = [(data / "meta.properties").read_text().splitlines() for data in copies]
    kept = [[line for line in each if not line.startswith("directory.id=")] for each in lines]
    assert kept == [
        [*IDS.splitlines()[:2], f"node.id={number}", "version=1", "cluster.id=new"]
        for number in range(2)
    ]
    (first,), (second,) = (set(each) - set(rest) for each, rest in zip(lines, kept, strict=True))
    assert first != second
    assert "directory.id=ours" not in {first, second}


def test_a_template_that_cannot_be_kept_is_done_without(tmp_path):
    keep_formatted(tmp_path / "made", tmp_path / "nowhere" / "template")
    assert list(tmp_path.iterdir()) == []


def test_ids_are_never_taken_for_options():
    assert not any(new_id().startswith("-") for _ in range(1000))
