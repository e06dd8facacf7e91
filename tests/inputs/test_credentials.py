"""Passwords in addresses of stores: out of every text, and back where the store is opened."""

from __future__ import annotations

import os

import pytest

from msaccel.tracking import credentials
from msaccel.tracking.credentials import complete, hidden, hidden_in, scrubbed, without_password

ADDRESSES = {
    "http://name:secret@host:5000/path": "http://host:5000/path",
    "https://name:sec%2Fret@host": "https://host",
    "https://name:s@cret@host/a@b": "https://host/a@b",
    "http://name:sec/ret@host:5000/path": "http://host:5000/path",
    "http://name:secret?#x@host/path": "http://host/path",
    "http://secret@host": "http://host",
    "postgresql://name:secret@host/base?sslmode=require": "postgresql://host/base?sslmode=require",
    "postgresql://host/base?user=a&password=secret&x=1": "postgresql://host/base?user=a&password=&x=1",
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


def test_the_password_of_a_database_is_given_back_where_it_is_opened() -> None:
    uri = "postgresql://name:secret@host/base"
    assert hidden(uri) == "postgresql://host/base"
    assert complete("postgresql://host/base") == uri
    assert complete("postgresql://host/other") == "postgresql://host/other"
    assert hidden("sqlite:///a.db") == complete("sqlite:///a.db") == "sqlite:///a.db"


def test_a_command_line_has_none() -> None:
    typed = ["-m", "tracking.uri=http://name:secret@host", "seed=0", "+note=tracking.uri=http://a:b@c"]
    assert hidden_in(typed) == ["-m", "tracking.uri=http://host", "seed=0", "+note=tracking.uri=http://a:b@c"]


def test_a_reason_of_mlflows_has_none() -> None:
    assert scrubbed("API request to http://name:secret@host/api failed") == "API request to http://host/api failed"
