"""Certificates of the claim store are looked at before the first connection, its login at each."""

from typing import Any

import pytest

from hapax.claims.redis_connection import Tls, connect
from hapax.core.errors import ConfigurationError
from hapax.sandbox.guard import Authority

URL = "rediss://hapax:s3cret@cache/0"
LOCK = "open-sesame"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"))


def options(tls: Tls) -> dict[str, object]:
    return dict(connect(URL, tls=tls).connection_pool.connection_kwargs)


def test_sound_files_are_handed_to_the_client(authority):
    ours = authority.issue("hapax", password=LOCK)
    files = (str(authority.ca_file), str(ours.certificate_file), str(ours.key_file))
    given = options(Tls(*files, LOCK))
    assert tuple(given[f"ssl_{name}"] for name in ("ca_certs", "certfile", "keyfile")) == files
    assert given["ssl_password"] == LOCK


def test_without_files_the_authorities_of_the_system_are_trusted():
    assert not [name for name in options(Tls()) if name.startswith("ssl_")]


def refusal(tls: Tls) -> str:
    with pytest.raises(ConfigurationError) as caught:
        connect(URL, tls=tls)
    assert "s3cret" not in str(caught.value)
    return str(caught.value)


def test_a_ca_file_that_is_not_there_is_a_mistake_and_no_outage(tmp_path):
    said = refusal(Tls(str(tmp_path / "ca.pem")))
    assert said.startswith("The CA file for Redis cannot be used:")
    assert "No such file" in said


def test_a_ca_file_without_a_certificate_is_refused(tmp_path):
    (tmp_path / "ca.pem").write_text("none")
    assert "The CA file for Redis cannot be used:" in refusal(Tls(str(tmp_path / "ca.pem")))


@pytest.mark.parametrize("password", [None, "wr0ng"])
def test_a_key_that_cannot_be_opened_is_refused_without_asking_or_telling(authority, password):
    ours = authority.issue("locked", password=LOCK)
    said = refusal(Tls(None, str(ours.certificate_file), str(ours.key_file), password))
    assert said.startswith("The certificate for Redis cannot be used:")
    assert "wr0ng" not in said


def test_the_key_of_another_certificate_is_refused(authority):
    ours, other = authority.issue("ours"), authority.issue("other")
    assert "certificate for Redis" in refusal(
        Tls(None, str(ours.certificate_file), str(other.key_file))
    )


@pytest.mark.parametrize(
    "address",
    [
        "rediss://{}cache:6380/0",
        "redis+sentinel://{}one:1,two:2/mymaster",
        "redis+cluster://{}one:1,two:2",
    ],
)
@pytest.mark.parametrize(
    ("before", "now", "given"),
    [
        ("shop:s3cret@", "shop:n%40w@", ("shop", "n@w")),
        (":s3cret@", ":n%40w@", ("n@w",)),
    ],
)
def test_each_connection_asks_for_the_login_that_the_address_has_then(address, before, now, given):
    current = address.format(before)
    made = connect(address.format(before), current=lambda: current).connection_pool
    assert "s3cret" not in str(made.connection_kwargs)
    current = address.format(now)
    made_now: Any = made.make_connection()
    assert made_now.credential_provider.get_credentials() == given


def test_a_login_in_the_query_of_the_address_is_read_and_given_as_well():
    current = "redis://cache:6380/0?username=shop&password=s3cret&client_name=x"
    made = connect(current, current=lambda: current).connection_pool
    assert "s3cret" not in str(made.connection_kwargs)
    assert made.connection_kwargs["client_name"] == "x"
    provider = made.connection_kwargs["credential_provider"]
    assert provider.get_credentials() == ("shop", "s3cret")
    current = "redis://shop:n%40w@cache:6380/0?password=not-this-one"
    assert provider.get_credentials() == ("shop", "n@w")


def test_sentinels_are_not_given_the_login_of_the_server():
    url = "redis+sentinel://shop:s3cret@one:1/mymaster?sentinel_password=w4tch"
    made = connect(url, current=lambda: url).connection_pool.connection_kwargs
    (sentinel,) = made["primary"]._sentinels.sentinels
    asked = sentinel.connection_pool.make_connection()
    assert (asked.credential_provider, asked.password) == (None, "w4tch")
