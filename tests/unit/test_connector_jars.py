import hashlib
import sys

import pytest

from hapax import jars
from hapax.core.errors import PreflightError
from hapax.engines.spark.session import CONNECTOR, connector_jars
from hapax.jars import Jar


@pytest.fixture
def baked_in(tmp_path, monkeypatch):
    """A folder as an image has it, with one locked jar and one more."""
    lock = (Jar("org.example", "one", "1.0", hashlib.sha256(b"one").hexdigest()),)
    monkeypatch.setattr(jars, "locked", lambda _lock: lock)
    (tmp_path / "one-1.0.jar").write_bytes(b"one")
    (tmp_path / "login.jar").write_bytes(b"a login module")
    return tmp_path


def test_the_lock_names_the_source_and_the_client_that_belongs_to_it():
    assert [jar.file for jar in jars.locked(CONNECTOR)] == [
        "commons-pool2-2.13.1.jar",
        "kafka-clients-3.9.2.jar",
        "spark-sql-kafka-0-10_2.13-4.2.0.jar",
        "spark-token-provider-kafka-0-10_2.13-4.2.0.jar",
    ]


def test_a_folder_of_an_image_gives_all_its_jars(baked_in):
    assert connector_jars(str(baked_in)) == (
        str(baked_in / "login.jar"),
        str(baked_in / "one-1.0.jar"),
    )


def test_a_folder_with_another_file_under_the_name_is_refused(baked_in):
    (baked_in / "one-1.0.jar").write_bytes(b"evil")
    with pytest.raises(PreflightError, match=r"is not the file that connector\.lock"):
        connector_jars(str(baked_in))


def test_a_folder_without_the_connector_is_refused(baked_in):
    (baked_in / "one-1.0.jar").unlink()
    with pytest.raises(PreflightError, match=r"one-1\.0\.jar is not in"):
        connector_jars(str(baked_in))


def test_where_the_sandbox_is_absent_the_setting_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "hapax.sandbox", None)  # as in an image
    with pytest.raises(PreflightError, match="set HAPAX_SPARK__JARS"):
        connector_jars()
