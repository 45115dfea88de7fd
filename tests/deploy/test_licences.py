"""docs/licences.md: each thing that an image holds, under a licence that is allowed."""

from __future__ import annotations

from email.message import Message
from importlib.metadata import PackageNotFoundError, metadata

import pytest

from deploy.licences import IMAGES, RECORDED, licence_in, licence_of, licensed, page, pins, refused
from hapax.engines.spark.connector import CONNECTOR
from hapax.jars import locked


def test_no_image_holds_anything_under_a_licence_that_is_not_allowed():
    assert [one for one in licensed() if refused(one.licence)] == []


def test_every_line_of_a_lock_and_every_jar_is_on_the_page():
    listed = {(one.name, one.version) for one in licensed()}
    jars = {(f"{jar.group}:{jar.artifact}", jar.version) for jar in locked(CONNECTOR)}
    assert listed == {pin for image in IMAGES for pin in pins(image)} | jars
    assert len([one for one in listed if one[0] == "numpy"]) == 2  # one for each Python
    assert [name for name, version in listed if f"| {name} | {version} |" not in page()] == []


@pytest.mark.parametrize(
    "expression",
    [
        "GPL-3.0-only",
        "MIT AND LGPL-2.1-or-later",
        "GPL-2.0-only WITH Classpath-exception-2.0",
        "LicenseRef-of-ones-own",
        "BSD",
        "",
    ],
)
def test_what_is_not_allowed_or_not_known_is_refused(expression):
    assert refused(expression)


@pytest.mark.parametrize(
    "expression", ["MIT", "GPL-3.0-only OR MIT", "MPL-2.0 AND (Apache-2.0 OR GPL-2.0-only)"]
)
def test_a_choice_that_has_an_allowed_side_is_not_refused(expression):
    assert not refused(expression)


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ([("License-Expression", "MIT"), ("License", "Apache 2")], "MIT"),
        ([("License", "BSD 3-Clause License\n\nCopyright")], "BSD-3-Clause"),
        ([("Classifier", "License :: OSI Approved :: MIT License")], "MIT"),
        ([("License", "BSD License")], None),  # of which there are several
        ([("Classifier", "License :: OSI Approved :: BSD License")], None),
        (
            [
                ("Classifier", "License :: OSI Approved :: MIT License"),
                ("Classifier", "License :: OSI Approved :: Apache Software License"),
            ],
            None,  # both, or either
        ),
        ([], None),
    ],
)
def test_a_licence_is_taken_from_metadata_where_it_can_mean_one_only(fields, licence):
    given = Message()
    for name, value in fields:
        given[name] = value
    assert licence_in(given) == licence


def test_a_library_of_another_version_or_that_states_nothing_has_to_be_read():
    with pytest.raises(LookupError, match="make setup"):
        licence_of("typer", "0.0.1")
    with pytest.raises(LookupError, match="record its licence"):
        licence_of("not-installed-anywhere", "1.0")


def test_what_is_recorded_is_locked_and_agrees_with_what_is_installed():
    held = {f"{one.name} {one.version}" for one in licensed()}
    assert set(RECORDED) - held == set(), "what is locked no more is recorded no more"
    disagreeing = {}
    for pin, licence in RECORDED.items():
        name, version = pin.split()
        try:
            found = metadata(name)
        except PackageNotFoundError:
            continue
        expressions = found.get_all("License-Expression") or [licence]
        if found["Version"] == version and expressions != [licence]:
            disagreeing[pin] = expressions
    assert disagreeing == {}
