"""Passwords in addresses of stores: out of every text, and back where the store is opened."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from msaccel.__main__ import main
from msaccel.config.messages import without_passwords
from msaccel.errors import ConfigError, UserError
from msaccel.tracking import credentials
from msaccel.tracking.credentials import complete, hidden, scrubbed, without_password
from msaccel.tracking.store import open_store

ADDRESSES = {
    "http://name:secret@host:5000/path": "http://host:5000/path",
    "https://name:sec%2Fret@host": "https://host",
    "https://name:s@cret@host/a@b": "https://host/a@b",
    "http://name:sec/ret@host:5000/path": "http://host:5000/path",
    "http://name:secret?#x@host/path": "http://host/path",
    "http://secret@host": "http://host",
    "postgresql://name:secret@host/base?sslmode=require": "postgresql://host/base?sslmode=require",
    "postgresql://host/base?user=a&password=secret&sslmode=require": "postgresql://host/base?user=&password=&sslmode=require",
    "postgresql://host/base?auth=secret": "postgresql://host/base?auth=",
    "postgresql://host/base?secret": "postgresql://host/base?",
    "HTTP://name:secret@host": "HTTP://host",
    "mssql+pyodbc://host/base?Pwd=secret": "mssql+pyodbc://host/base?Pwd=",
    "http://host:5000/a@b": "http://host:5000/a@b",
    "http://[::1]:5000/a@b": "http://[::1]:5000/a@b",
    "sqlite:////home/me@work/mlflow.db": "sqlite:////home/me@work/mlflow.db",
    "file:///home/me@work": "file:///home/me@work",
    "mlruns": "mlruns",
    "": "",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (credentials._URI, credentials._USER, credentials._PASSWORD):
        monkeypatch.setenv(name, "before")  # so that it is as it was afterwards
        monkeypatch.delenv(name)


@pytest.mark.parametrize(("uri", "shown"), ADDRESSES.items())
def test_what_is_shown(uri: str, shown: str) -> None:
    assert without_password(uri) == shown
    assert without_password(shown) == shown


def test_the_password_of_a_server_goes_where_mlflow_looks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    uri = "http://a%20name:sec%2Fret@host:5000"
    monkeypatch.setenv(credentials._URI, uri)
    assert hidden(uri) == complete(uri.replace("a%20name:sec%2Fret@", "")) == "http://host:5000"
    assert os.environ[credentials._USER] == "a name" and os.environ[credentials._PASSWORD] == "sec/ret"
    assert os.environ[credentials._URI] == "http://host:5000"


def test_a_name_alone_leaves_the_password_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(credentials._PASSWORD, "of the environment")
    assert hidden("http://alice@host:5000") == "http://host:5000"
    assert (os.environ[credentials._USER], os.environ[credentials._PASSWORD]) == ("alice", "of the environment")


def test_the_password_of_a_database_is_given_back_where_it_is_opened() -> None:
    uri = "postgresql://name:secret@host/base"
    assert hidden(uri) == "postgresql://host/base"
    assert complete("postgresql://host/base") == uri
    assert complete("postgresql://host/other") == "postgresql://host/other"
    assert hidden("sqlite:///a.db") == complete("sqlite:///a.db") == "sqlite:///a.db"


MISTYPED = (
    "name:secret@host", "http:/name:secret@host", "http://host?auth=secret", "host:1?a=secret",
    "sqlite://name:secret@host/base", "SQLITE://name:secret@host", "file://name:secret@host/base",
    "postgresql://host/base#secret", "postgresql://name:secret%40host/base", "mysql://name%3Asecret%40host/base",
    "postgresql://host:secret/base", "postgresql://host:1secret/base", "databricks://secret:x:y",
)  # fmt: skip


@pytest.mark.parametrize("uri", MISTYPED)
def test_a_mistyped_address_is_refused_and_not_shown(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"^tracking.uri is not understood, and not shown") as raised:
        hidden(uri)
    assert "secret" not in str(raised.value)
    for command in ("status", "compare", "ui"):
        assert main([command, "--tracking-uri", uri]) == 2
    said = capsys.readouterr()
    assert "not shown" in said.err and "secret" not in said.out + said.err


@pytest.mark.parametrize("uri", ["sqlite://", "sqlite:///:memory:"])
def test_a_store_in_memory_is_refused_since_it_ends_with_the_process(uri: str) -> None:
    with pytest.raises(ConfigError, match=r"^tracking.uri is not understood"):
        hidden(uri)


ADDRESS = "http://name:secret@host"


@pytest.mark.slow
@pytest.mark.parametrize(
    "typed",
    [
        ("status", f"--traking-uri={ADDRESS}"),
        ("compare", "--margin", ADDRESS),
        ("name:secret@host",),
        ("status", "--tracking-uri", "http://127.0.0.1:1/2:secret@host"),
        ("eval", ADDRESS, "--tracking-uri", "sqlite:///{}/mlflow.db"),
        ("compare", "--experiment", ADDRESS, "--tracking-uri", "sqlite:///{}/mlflow.db"),
        ("compare", "--tag", ADDRESS, "--tracking-uri", "sqlite:///{}/mlflow.db"),
        ("launch-plan", "device=cpu2x2", "--hosts", "name:secret@host,b"),
    ],
    ids=" ".join,
)
def test_a_password_in_any_argument_is_not_shown(
    typed: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main([word.format(tmp_path) for word in typed])
    except SystemExit as ended:  # argparse's
        code = ended.code
    said = capsys.readouterr()
    assert code == 2 and said.err and "secret" not in said.out + said.err


def test_a_study_takes_its_store_as_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    """As an override of its jobs the address would stand in the commands that --dry-run prints, and in the card."""
    assert main(["study", "adasum", "tracking={uri: 'http://name:secret@host'}", "--dry-run"]) == 2
    said = capsys.readouterr()
    assert "write --tracking-uri" in said.err and "secret" not in said.out + said.err


@pytest.mark.parametrize(
    "uri",
    [
        "mlruns",
        "./a:b@c",
        "/home/a:b@c",
        "file:mlruns",
        "databricks://profile",
        "http://[::1]:5000/a",
        "postgresql+psycopg2://[::1]:5432/base",
        "mysql://a.b:3306,c-d:3306/base?charset=utf8",
        "sqlite+pysqlite:////a/b",
    ],
)
def test_other_addresses_are_as_they_were(uri: str) -> None:
    assert hidden(uri) == complete(uri) == uri


def test_a_store_that_mlflow_does_not_know_is_named_without_password() -> None:
    with pytest.raises(UserError, match=r"tracking.uri=gopher://host cannot be used \(.*'gopher://host'") as raised:
        open_store(hidden("gopher://name:sec/ret@host"))
    assert "sec" not in str(raised.value)


def test_a_message_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    uri = "oracle://name:sec ret@host/base"
    monkeypatch.setenv(credentials._URI, uri)
    assert scrubbed(f"unsupported: {uri}") == "unsupported: oracle://host/base"
    assert scrubbed("API request to http://name:secret@host/api failed") == "API request to http://host/api failed"
    assert (
        scrubbed("of 'postgresql://name:sec/ret@host/base?token=secret&a=b failed")
        == "of 'postgresql://host/base?token=&a=b failed"
    )
    assert scrubbed("sqlite:////home/me@work/mlflow.db is locked") == "sqlite:////home/me@work/mlflow.db is locked"


@pytest.mark.parametrize("sign", ["?", "?pass", "&", "a:", "://", ":", "@", "?token=", "a", "=", "'"])
def test_a_long_text_takes_no_time(sign: str) -> None:
    """Searched for with a regular expression that tried all ends from all beginnings, 4,000 signs took 8 seconds."""
    begun = time.process_time()
    for text in (sign * 100_000, f"@{sign * 100_000}", f"{sign * 100_000}@"):
        without_passwords(text)
    assert time.process_time() - begun < 60
