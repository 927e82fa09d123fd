"""Secret detection: what is a credential is found and taken out; what only looks odd is not."""

from __future__ import annotations

import base64
import hashlib
import random
import string
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.policy.secrets import (
    find_in_arguments,
    find_secrets,
    redact_arguments,
    redact_secrets,
)

# Put together here, so that no scanner of this repository takes them for real ones.
GITHUB = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
ANTHROPIC = "sk-ant-" + "api03-abcDEF123456789_xyz-QQ"
AWS_ID = "AKIA" + "IOSFODNN7EXAMPLE"
AWS_KEY = "wJalrXUtnFEMI" + "/K7MDENG/bPxRfiCYEXAMPLEKEY"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA1234\nabcd+/==\n-----END RSA PRIVATE KEY-----"
)
RANDOM = "q7Jk2mZx9LpR4vTn8WsB3cYd6FhG1aQeU5oPiM0t"

SECRETS = {
    "anthropic": ANTHROPIC,
    "openai project": "OPENAI_API_KEY=sk-" + "proj-Ab12Cd34Ef56Gh78Ij90",
    "openai old": "sk-" + RANDOM,
    "github": f"my key is {GITHUB}",
    "github of one letter": "ghp_" + "a" * 36,
    "github fine-grained": "github_pat_" + "11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz01234",
    "gitlab": "glpat-" + "abcDEF123456ghiJKL78",
    "aws pair": f"{AWS_ID} {AWS_KEY}",
    "aws file": f"aws_access_key_id = {AWS_ID}\naws_secret_access_key = {AWS_KEY}",
    "pem": PEM,
    "pem in json": PEM.replace("\n", "\\n"),
    "pem cut off": PEM.partition("\n-----END")[0],
    "jwt": JWT,
    "slack": "xoxb-" + "123456789012-abcdefGHIJK",
    "google": "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "stripe": "sk_live_" + "abcd1234ABCD5678efgh9012",
    "yaml": "password: hunter2xyz!",
    "short": "password: hunter2",
    "digits": "Password: 12345678",
    "next line": "password:\n  hunter2xyz!",
    "json": '{"password": "hunter2xyz!"}',
    "json in json": r"{\"password\": \"hunter2xyz!\"}",
    "after an escape": rf"\n{GITHUB}",
    "markdown": "**Password:** hunter2xyz!",
    "prose": "the password is hunter2xyz!",
    "option": "mysql --password hunter2xyz! -u me",
    "typed code": 'db_password: str = "hunter2xyz!"',
    "environment": "PASSWORD=hunter2",
    "other language": "contraseña: hunter2xyz!",
    "token": "token=abc123def456ghi",
    "query": "https://x.org/?user=1&token=abc123def456ghi&x=1",
    "behind a harmless one": "password=foo&token=abc123def456ghi",
    "api key": "api_key: 0123456789abcdef0123456789abcdef",
    "secret": "client secret: s3cr3tv4lue",
    "address": "postgres://bob:s3cr3tpw@db/x",
    "bearer": "Authorization: Bearer abc123def456ghi789jkl",
    "basic": "curl -H 'Authorization: Basic Ym9iOmh1bnRlcjI='",
    "random": f'x = "{RANDOM}"',
}

CAPTIONS = (
    "A cat sits on a mat, 1932.",
    "Ein Kätzchen schläft auf dem Sofa im Garten, Foto 12",
    "写真：京都の秋、2023年11月",
    "Fig. 3: Sales rose 12 % in Q4 2023 (n = 1,024)",
)
HARMLESS = (
    "commit 3f2a9c7d1e4b5a6f8c9d0e1f2a3b4c5d6e7f8a9b",
    hashlib.sha256(b"x").hexdigest(),
    f"sha512: {hashlib.sha512(b'x').hexdigest()}",
    "550e8400-e29b-41d4-a716-446655440000",
    "token: 550e8400-e29b-41d4-a716-446655440000",
    *(base64.b64encode(caption.encode()).decode() for caption in CAPTIONS),
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    '"integrity": "sha512-Mz3yH0kQxJ1bqK8sX5pWvT2nR7cD4gLfA9eUo6iB+/hYlZ=="',
    "SHA256:Mz3yH0kQxJ1bqK8sX5pWvT2nR7cD4gLfA9eUo6iBhYl",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMz3yH0kQxJ1bqK8sX5pWvT2nR7cD4gLfA9eUo6iBhYl b@x",
    "-----BEGIN CERTIFICATE-----\n"
    "MIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQGEwJJ\n"
    "RTESMBAGA1UEChMJQmFsdGltb3JlMRMwEQYDVQQLEwpDeWJlclRydXN0MSIwIAYD\n"
    "VQQDExlCYWx0aW1vcmUgQ3liZXJUcnVzdCBSb290\n-----END CERTIFICATE-----",
    "How do I use the terminal?",
    "Comment réinitialiser mon mot de passe ?",
    "Password: required",
    "password: must be at least 8 characters",
    "The password is required for 2 users, and the password is sha256-hashed.",
    "The secret: patience and 10000 hours. Secret Santa 2023.",
    "密码：请输入您的密码，至少8个字符",
    "パスワード: 8文字以上",
    "token:用于认证的字符串2个",
    "AWS key ids begin with AKIA, ours with sk-ant-..., and keys with BEGIN PRIVATE KEY.",
    "max_tokens = 4096, token: gpt-4o-mini, token counts: 120k in / 3k out",
    "next_page_token: CAESBgoEMTIzNA12ab",
    "def f(password: str, token: Optional[str] = None): self.token = response.json()['token1']",
    "token = get_token(); password = os.environ['DB_PASSWORD1']; key = settings.api_key2",
    'print(f"password={password!r} token={token2}")',
    "api_key: ${API_KEY_1} api_key=<your-key-1> password: changeme password: ••••••••",
    "sk-ant-your-key-here sk-learn-documentation-page-x risk-assessment-of-something-long1",
    "password: sha256, password: bob@example.com, password_length = 16chars",
    "/home/user/project/src/main.py C:\\Users\\bob\\AppData pwd=/home/bob1",
    "https://example.com/a/b?x=1#frag http://localhost:8080/@scope/pkg",
    "https://docs.google.com/document/d/1BxiMVs0XRA5nFMdKvBdBZjgmUUqptlbs74OgvE2upms/edit",
    "postgres://user:password@localhost/db",
    "getUserAccountDetailsByIdV2AndRegionCode2",
    "01J9ZK3V8Q4M6N7P8R9S0T1V2W msg_01J9ZK3V8Q4M6N7P8R9S0T1V2W",
    "default:678314278~peer~678314278",
    "session_token: default:678314278~peer~678314278",
    "default:bob~agent~researcher~run~run_researcher_01J9ZK3V8Q4M6N7P8R9S0T1V2W",
)


@pytest.mark.parametrize("text", SECRETS.values(), ids=SECRETS)
def test_a_credential_is_found_and_redacted(text: str) -> None:
    assert find_secrets(text)
    assert find_secrets(redact_secrets(text)) == ()
    assert find_secrets(f"Look at this:\n\n{text}\n\nWhat is it?")


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_credential_is_left_alone(text: str) -> None:
    assert find_secrets(text) == ()
    assert redact_secrets(text) == text


def test_our_own_documents_and_sources_hold_none() -> None:
    root = Path(__file__).parent.parent
    for path in [*root.glob("perdure/**/*.py"), *root.glob("docs/*.md"), root / "README.md"]:
        assert (path.name, find_secrets(path.read_text())) == (path.name, ())


def test_a_finding_says_its_kind_and_place_and_never_the_value() -> None:
    text = f"ключ:\n\n{GITHUB} и\npassword: hunter2xyz!\n"
    github, password = find_secrets(text)
    assert (github.kind, github.line, text[github.start : github.end]) == (
        "github-token",
        3,
        GITHUB,
    )
    assert (password.kind, password.line) == ("named-secret", 4)
    assert text[password.start : password.end] == "hunter2xyz!"
    assert redact_secrets(text) == (
        "ключ:\n\n[REDACTED:github-token] и\npassword: [REDACTED:named-secret]\n"
    )


def test_both_halves_of_an_aws_pair_and_all_of_a_private_key_go() -> None:
    text = redact_secrets(f"{AWS_ID}\n{AWS_KEY}\n{PEM}\nend")
    assert text == (
        "[REDACTED:aws-access-key]\n[REDACTED:aws-secret-key]\n[REDACTED:private-key]\nend"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": f"export KEY={ANTHROPIC}"},
        {"env": {"password": "hunter2xyz!"}},
        {"argv": ["mysql", "--password", "hunter2xyz!"]},
        {"a": [{"b": [GITHUB]}]},
        {"map": {GITHUB: 1}},
        {GITHUB: "x"},
        {"id": AWS_ID, "value": AWS_KEY},
        {"content": PEM},
        {"nested": '{"password": "hunter2xyz!"}'},
    ],
)
def test_a_credential_anywhere_in_arguments_is_found_and_redacted(
    arguments: dict[str, Any],
) -> None:
    found = find_in_arguments(arguments)
    assert found
    assert all(one.argument in arguments or "REDACTED" in one.argument for one in found)
    redacted = redact_arguments(arguments)
    assert find_in_arguments(redacted) == ()
    for secret in (ANTHROPIC, GITHUB, AWS_ID, AWS_KEY, "hunter2xyz!", "MIIEpAIBAAKCAQEA1234"):
        assert secret not in str(redacted)


@pytest.mark.parametrize(
    "arguments",
    [
        {"token": "next", "page_token": "CAESBgoEMTIzNA12ab", "password": None, "max_tokens": 4096},
        {"password": "required", "session_key": "default:678314278~peer~678314278"},
        {"commit": "3f2a9c7d1e4b5a6f8c9d0e1f2a3b4c5d6e7f8a9b", "n": [1, 2.5, True]},
        {"a": "the password:", "b": "hunter2xyz"},
    ],
)
def test_harmless_arguments_stay_as_they_are(arguments: dict[str, Any]) -> None:
    assert find_in_arguments(arguments) == ()
    assert redact_arguments(arguments) == arguments


_shards = st.sampled_from(
    [*SECRETS.values(), *HARMLESS, "password", ": ", "=", '"', "\\", "\n", "eyJ", ".", "@", "://"]
)


@settings(max_examples=120, deadline=None)
@given(st.lists(_shards | st.text(max_size=12), max_size=8).map("".join))
@example("password: [REDACTED:x]tail9xyz")
@example("ghp_" * 40 + "\ud800")
def test_redaction_never_leaves_a_finding(text: str) -> None:
    redacted = redact_secrets(text)
    assert find_secrets(redacted) == ()
    assert redact_secrets(redacted) == redacted


_values = st.recursive(
    st.none() | st.integers() | _shards | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_shards, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(_shards, _values, max_size=3))
@example({"\n\0\n": GITHUB, "x": {"\n\0\n": "\n\0\n" + JWT}})
def test_redacted_arguments_never_hold_a_finding(arguments: dict[str, Any]) -> None:
    assert find_in_arguments(redact_arguments(arguments)) == ()


_LETTERS = string.ascii_letters + string.digits


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "eyJ",
        "eyJaaaaaaaaaa.",
        "password=",
        'password="',
        "password: a1 ",
        "-----BEGIN RSA PRIVATE KEY-----",
        f"{AWS_ID} {AWS_KEY}\n",
        "x://u:p1@h",
        "glagent-",
        "xoxb-1-",
        " --a-password",
        "secret=" + "a1" * 200,
    ],
)
def test_a_megabyte_made_to_be_slow_is_searched_to_its_end(piece: str) -> None:
    # Quadratic searching takes minutes here: the test's timeout is the assertion.
    text = piece * (1_000_000 // len(piece)) + f" {GITHUB}"
    assert find_secrets(text)[-1].end == len(text)


def test_threads_share_detection() -> None:
    dice = random.Random(5)
    noise = ["".join(dice.choices(_LETTERS + " \n", k=5_000)) for _ in range(8)]
    texts = [f"{noise[n % 8]} {secret} {noise[n % 5]}" for n, secret in enumerate(SECRETS.values())]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(find_secrets, texts)) == [find_secrets(text) for text in texts]
