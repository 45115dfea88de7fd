import hashlib
import re
import sys
from pathlib import Path

import pytest

from hapax import jars
from hapax.core.errors import PreflightError
from hapax.engines.spark import session
from hapax.engines.spark.session import connector, connector_jars
from hapax.jars import Jar


@pytest.fixture
def baked_in(tmp_path, monkeypatch):
    """A folder as an image has it, with one locked jar and one more."""
    lock = (Jar("org.example", "one", "1.0", hashlib.sha256(b"one").hexdigest()),)
    monkeypatch.setattr(jars, "locked", lambda _lock: lock)
    (tmp_path / "one-1.0.jar").write_bytes(b"one")
    (tmp_path / "login.jar").write_bytes(b"a login module")
    return tmp_path


@pytest.mark.parametrize(
    ("pyspark", "number"),
    [
        *(("4.0.0", "4.0.0"), ("4.0.5", "4.0.4"), ("4.1.0", "4.1.0"), ("4.1.4", "4.1.3")),
        *(("4.2.0", "4.2.0"), ("4.3.0", "4.2.0"), ("4.3.0.dev1", "4.2.0"), ("4.10.0", "4.2.0")),
    ],
)
def test_the_connector_is_the_newest_that_is_not_above_pyspark(pyspark, number):
    lock = connector(pyspark)
    assert (lock.path.name, lock.stem) == (f"connector-{number}.lock", f"spark-kafka-{number}")


@pytest.mark.parametrize("pyspark", ["3.5.9", "5.0.0"])
def test_another_pyspark_than_4_is_refused(pyspark):
    with pytest.raises(PreflightError, match=rf"{pyspark} is installed: pip install 'pyspark>=4"):
        connector(pyspark)


@pytest.mark.parametrize("path", sorted(connector().path.parent.glob("connector-*.lock")), ids=str)
def test_a_lock_names_the_source_and_the_client_that_belongs_to_it(path):
    number = path.stem.removeprefix("connector-")
    pool, client, source, tokens = jars.locked(connector(number))
    assert (source.artifact, source.version) == ("spark-sql-kafka-0-10_2.13", number)
    assert (pool.artifact, client.artifact) == ("commons-pool2", "kafka-clients")
    assert client.version.startswith("3.9.")
    assert tokens.artifact == "spark-token-provider-kafka-0-10_2.13"
    assert tokens.version <= number


def test_where_no_pyspark_is_the_connector_is_that_of_the_locked_one(monkeypatch):
    monkeypatch.setattr(session, "find_spec", lambda _name: None)
    (locked,) = re.findall(r"(?m)^pyspark==(\S+)", Path("requirements/spark.txt").read_text())
    assert connector() == connector(locked)


def test_a_folder_of_an_image_gives_all_its_jars(baked_in):
    assert connector_jars(str(baked_in)) == (
        str(baked_in / "login.jar"),
        str(baked_in / "one-1.0.jar"),
    )


def test_a_folder_with_another_file_under_the_name_is_refused(baked_in):
    (baked_in / "one-1.0.jar").write_bytes(b"evil")
    with pytest.raises(PreflightError, match=r"is not the file that connector-\S+\.lock"):
        connector_jars(str(baked_in))


def test_a_folder_without_the_connector_is_refused(baked_in):
    (baked_in / "one-1.0.jar").unlink()
    with pytest.raises(PreflightError, match=r"one-1\.0\.jar is not in"):
        connector_jars(str(baked_in))


def test_where_the_sandbox_is_absent_the_setting_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "hapax.sandbox", None)  # as in an image
    with pytest.raises(PreflightError, match="set HAPAX_SPARK__JARS"):
        connector_jars()
