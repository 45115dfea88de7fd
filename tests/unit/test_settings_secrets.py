import pytest
from hypothesis import given
from hypothesis import strategies as st

from hapax.core.errors import ConfigurationError
from hapax.settings import load_settings
from tests.unit.test_settings import REQUIRED, SECRETS
from tests.unit.test_settings_problems import SECURITY, problems

REDIS = "HAPAX_DEDUP__REDIS_URL"
PASSWORD = f"{SECURITY}PASSWORD"
SASL = {
    f"{SECURITY}PROTOCOL": "sasl_ssl",
    f"{SECURITY}SASL_MECHANISM": "PLAIN",
    f"{SECURITY}USERNAME": "u",
}


def password(**environ: str) -> str:
    secret = load_settings(REQUIRED | SASL | environ).kafka.security.password
    assert secret is not None
    return secret.get_secret_value()


def test_a_secret_is_taken_from_the_environment_as_it_is():
    assert password(**{PASSWORD: " hunter2 "}) == " hunter2 "


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
def test_a_secret_of_the_environment_loses_its_line_end_as_that_of_a_file_does(end):
    assert password(**{PASSWORD: f" hunter2 {end}"}) == " hunter2 "
    assert password(**{PASSWORD: f"two\nlines{end}"}) == "two\nlines"


def test_a_secret_that_is_a_line_end_alone_is_refused():
    (problem,) = problems(**SASL, **{PASSWORD: "\n"})
    assert "it holds a line break and nothing else" in problem


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
def test_a_secret_is_read_from_a_file_without_its_line_end(tmp_path, end):
    path = tmp_path / "password"
    path.write_text(f" hunter2{end}", newline="")
    assert password(**{f"{PASSWORD}_FILE": str(path)}) == " hunter2"


@pytest.mark.parametrize("variable", sorted(SECRETS))
def test_every_secret_has_a_file(tmp_path, variable):
    (problem,) = problems(**{f"{variable}_FILE": str(tmp_path / "missing")})
    assert problem.startswith(f'{variable}_FILE="')
    assert "the file cannot be read: No such file" in problem


def test_a_secret_stands_in_one_place_only(tmp_path):
    (problem,) = problems(**SASL, **{PASSWORD: "hunter2", f"{PASSWORD}_FILE": str(tmp_path)})
    assert problem == f"{PASSWORD} and {PASSWORD}_FILE are both set: keep one of them"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"\xffhunter2", "is not UTF-8 text"),
        (b"hunter2" * 10_000, "is too large for a secret"),
    ],
)
def test_a_file_that_holds_no_secret_is_refused(tmp_path, content, reason):
    path = tmp_path / "password"
    path.write_bytes(content)
    (problem,) = problems(**SASL, **{f"{PASSWORD}_FILE": str(path)})
    assert problem.startswith(f"{PASSWORD}_FILE=")
    assert problem.endswith(f"the file {reason}")
    assert "hunter2" not in problem


def test_a_folder_is_no_secret(tmp_path):
    (problem,) = problems(**{f"{REDIS}_FILE": str(tmp_path)})
    assert "the file cannot be read" in problem


def test_a_secret_that_the_client_would_cut_off_is_refused(tmp_path):
    path = tmp_path / "password"
    path.write_bytes(b"hun\0ter2")
    (problem,) = problems(**SASL, **{f"{PASSWORD}_FILE": str(path)})
    assert problem.startswith(f"{PASSWORD}_FILE: it holds a zero byte")
    assert "hun" not in problem.replace("hunter2", "")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://cache:6379/0", "redis://cache:6379/0"),
        ("redis://:hunter2@cache:6379/0", "redis://:***@cache:6379/0"),
        ("rediss://user:hunter2@cache", "rediss://user:***@cache"),
        ("redis://user:hun%40ter2@[::1]:6379/1", "redis://user:***@[::1]:6379/1"),
        ("redis://cache/0?password=hunter2", "redis://cache/0?***"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("unix://u:hunter2@/run/redis.sock?db=1", "unix://u:***@/run/redis.sock?***"),
    ],
)
def test_the_claim_store_is_shown_with_its_host_and_without_its_password(url, shown):
    settings = load_settings(REQUIRED | {REDIS: url})
    assert settings.dedup.redis_url is not None
    assert settings.dedup.redis_url.get_secret_value() == url
    assert settings.effective()[REDIS] == shown
    assert "ter2" not in repr(settings)


@pytest.mark.parametrize(
    "url",
    [
        "cache:6379",
        "http://:hunter2@cache",
        "redis://",
        "redis://:hunter2@",
        "redis://:hun/ter2@cache:6379",
        "redis://:hunter2@cache:99999",
        "redis://:hunter2@cache:0",
        "redis://:hunter2@cache/first",
        "redis://[::1:hunter2",
        "redis://cache hunter2",
        "unix://",
    ],
)
def test_an_address_that_is_none_is_refused_without_repeating_it(url):
    (problem,) = problems(**{REDIS: url})
    assert problem.startswith(f"{REDIS}: ")
    assert "ter2" not in problem


@pytest.mark.parametrize(
    "url", ["login.example/token", "ftp://login.example", "https://u:hunter2@login.example/t"]
)
def test_a_token_address_is_plain_http(url):
    (problem,) = problems(
        **SASL | {f"{SECURITY}SASL_MECHANISM": "OAUTHBEARER"},
        **{
            f"{SECURITY}OAUTH_TOKEN_URL": url,
            f"{SECURITY}OAUTH_CLIENT_ID": "c",
            f"{SECURITY}OAUTH_CLIENT_SECRET": "s",
        },
    )
    assert problem.startswith(f"{SECURITY}OAUTH_TOKEN_URL: ")
    assert "hunter2" not in problem


MARK = "zyzzyva"


@given(
    st.sampled_from(
        [
            *sorted(SECRETS),
            "HAPAX_KAFKA__PROPERTIES",
            "HAPAX_KAFKA__BOOTSTRAP_SERVERS",
            "HAPAX_UNREAD",
        ]
    ),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8),
    st.sampled_from(["", "redis://", "redis://:", '{"a": "', '{"sasl.password": "', "redis://["]),
)
def test_no_problem_ever_repeats_what_may_be_a_secret(variable, noise, start):
    text = f"{start}{noise}{MARK}@{noise}"
    try:
        settings = load_settings(REQUIRED | {variable: text})
    except ConfigurationError as refusal:
        assert MARK not in str(refusal)  # noqa: PT017 - refused or not, it is not shown
    else:
        assert MARK not in repr(settings)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("socket_timeout=60", "the option socket_timeout of its query: it is set by HAPAX_DEDUP"),
        ("timeout=60", "it is set by HAPAX_DEDUP__TIMEOUT"),
        ("decode_responses=true", "the option decode_responses of its query: the claim store sets"),
        ("protocol=3", "the claim store sets it itself"),
        ("db=1&max_connections=1", "max_connections"),
        ("hunter2=1", "an option of its query is not known; those that pass are client_name, db"),
    ],
)
@pytest.mark.parametrize("scheme", ["redis://cache", "redis+sentinel://one/main", "unix:///r.sock"])
def test_options_of_the_query_that_override_the_stores_own_are_refused(scheme, option, words):
    (problem,) = problems(**{REDIS: f"{scheme}?{option}"})
    assert words in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize("option", ["db=1", "ssl_cert_reqs=required", "client_name=shop&db=2"])
def test_other_options_of_the_query_pass(option):
    assert load_settings(REQUIRED | {REDIS: f"rediss://cache?{option}"}).dedup.claims_url


def test_what_travels_of_a_registry_has_its_settings_and_secrets_with_their_files(tmp_path):
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    settings = load_settings(
        REQUIRED
        | {
            "HAPAX_REGISTRY__URL": "http://one:8081,http://two:8081",
            "HAPAX_REGISTRY__USER": "shop",
            "HAPAX_REGISTRY__PASSWORD_FILE": str(file),
            "HAPAX_REGISTRY__GRACE": "2s",
            "HAPAX_CALL__TIMEOUT": "500ms",
        }
    )
    travelling = settings.formats.registry
    assert travelling.urls == ("http://one:8081", "http://two:8081")
    assert travelling.password is not None
    assert (travelling.password.text, travelling.password.path) == ("hunter2", str(file))
    assert (travelling.token, travelling.grace_ms, travelling.wait_s) == (None, 2_000, 0.25)
    assert "hunter2" not in repr(settings.formats)
