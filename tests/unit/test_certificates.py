"""Until when certificates are valid: read from files and from handshakes of real ones."""

import io
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from hapax.core.certificates import expiries_s
from hapax.engines.certificate_watch import CertificateWatch
from hapax.kafka.admin.certificates import own_certificates, server_certificates
from hapax.sandbox.tls import Authority, IssuedCertificate
from hapax.settings import load_settings
from hapax.telemetry.events import Events
from hapax.telemetry.health import Health
from hapax.telemetry.logs import configure_logs
from hapax.telemetry.metrics import Metrics
from tests.kit.doctor import ENVIRON

DAY_S = 86_400
S = "HAPAX_KAFKA__SECURITY__"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@contextmanager
def server(shown: IssuedCertificate) -> Iterator[int]:
    """Give a port where a certificate is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.certificate_file, shown.key_file)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                    context.wrap_socket(connection, server_side=True).close()
                except ssl.SSLError:
                    continue
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("days", [-1, 1, 30, 20_000])
def test_the_end_of_a_certificate_is_read_from_its_file(authority, days):
    made = authority.issue(f"days{days}", days=days)
    (found,) = expiries_s(made.certificate_file.read_bytes())
    assert found == pytest.approx(time.time() + days * DAY_S, abs=120)


def test_of_a_chain_the_first_end_counts_and_of_authorities_the_last(authority, tmp_path):
    chain = tmp_path / "chain.pem"
    ours = authority.issue("ours", days=7)
    chain.write_bytes(ours.certificate_file.read_bytes() + authority.ca_file.read_bytes())
    files = {f"{S}CERTIFICATE_FILE": str(chain), f"{S}KEY_FILE": str(ours.key_file)}
    settings = load_settings({**ENVIRON, **files, f"{S}CA_FILE": str(chain)})
    client, authorities = own_certificates(settings)
    assert (client.role, authorities.role) == ("kafka-client", "kafka-ca")
    assert client.expires_s == pytest.approx(time.time() + 7 * DAY_S, abs=120)
    assert authorities.expires_s == pytest.approx(time.time() + 3650 * DAY_S, abs=120)


def test_servers_show_theirs_also_when_they_have_expired(authority):
    with (
        server(authority.issue("dead", days=-1)) as broker,
        server(authority.issue("alive", days=9)) as redis,
    ):
        environ = {
            **ENVIRON,
            "HAPAX_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{broker}",
            "HAPAX_DEDUP__REDIS_URL": f"rediss://u:p@127.0.0.1:{redis}/0",
        }
        first, second = server_certificates(load_settings(environ))
    assert (first.role, first.place) == ("kafka-broker", f"127.0.0.1:{broker}")
    assert (second.role, second.place) == ("redis-server", f"127.0.0.1:{redis}")
    assert first.expires_s == pytest.approx(time.time() - DAY_S, abs=120)
    assert second.expires_s == pytest.approx(time.time() + 9 * DAY_S, abs=120)


def test_what_cannot_be_read_says_why_and_nothing_is_raised(tmp_path):
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environ = {
        **ENVIRON,
        "HAPAX_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{port},[::1]:{port},nowhere.invalid:1",
        "HAPAX_DEDUP__REDIS_URL": "",
        f"{S}CA_FILE": str(empty),
        f"{S}CERTIFICATE_FILE": str(tmp_path / "missing.pem"),
        f"{S}KEY_FILE": str(tmp_path / "missing.key"),
    }
    settings = load_settings(environ)
    found = [*own_certificates(settings), *server_certificates(settings)]
    assert [each.expires_s for each in found] == [None] * 5
    assert all(each.problem for each in found)


@pytest.mark.parametrize("length", range(0, 400, 7))
def test_a_certificate_that_is_cut_off_is_refused_and_never_crashes(authority, length):
    whole = ssl.PEM_cert_to_DER_cert(authority.ca_file.read_text())
    pem = ssl.DER_cert_to_PEM_cert(whole[:length]).encode()
    try:
        found = expiries_s(pem)
    except ValueError:
        return
    assert found == expiries_s(authority.ca_file.read_bytes())


def test_the_watch_tells_when_certificates_expire_and_warns_of_those_that_do_soon(authority):
    metrics, lines = Metrics(), io.BytesIO()
    stream = io.TextIOWrapper(lines, write_through=True)
    logger = configure_logs("info", "json", stream=stream)
    events = Events(metrics, Health(60.0), logger)
    ours = authority.issue("mine", days=90)
    with server(authority.issue("soon", days=2)) as broker:
        environ = {
            **ENVIRON,
            "HAPAX_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{broker}",
            "HAPAX_DEDUP__REDIS_URL": "",
            f"{S}CERTIFICATE_FILE": str(ours.certificate_file),
            f"{S}KEY_FILE": str(ours.key_file),
        }
        settings = load_settings(environ)
        watch = CertificateWatch(
            events, partial(own_certificates, settings), partial(server_certificates, settings)
        )
        watch.stop()
        watch.run()
    dates = {
        (sample.labels["role"], sample.labels["place"]): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "hapax_certificate_expiry_timestamp_seconds"
    }
    assert dates == {
        ("kafka-client", str(ours.certificate_file)): pytest.approx(
            time.time() + 90 * DAY_S, abs=120
        ),
        ("kafka-broker", f"127.0.0.1:{broker}"): pytest.approx(time.time() + 2 * DAY_S, abs=120),
    }
    told = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [(one["event"], one["level"], one["role"]) for one in told] == [
        ("certificate_expires", "warning", "kafka-broker")
    ]
