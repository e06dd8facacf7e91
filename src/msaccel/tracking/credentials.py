"""Passwords in the address of a store: taken out where it comes in, and given back only to what opens the store.

What is left of the address is all that a configuration, a job's folder, MLflow and a terminal ever see. The password of
a server goes where MLflow's client looks for it, so that the addresses that MLflow prints have none either; that of a
database stays in ``MLFLOW_TRACKING_URI``. Both are environment variables, which a job's own processes inherit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from urllib.parse import unquote

_SERVERS = ("http://", "https://")
_KEY = "tracking.uri="
_URI, _USER, _PASSWORD = "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"
_SECRET_PARAMETER = re.compile(r"([?&;][^=&;]*(?:pass|pwd|secret|token|key)[^=&;]*=)[^&;]*", re.I)
_IN_A_TEXT = re.compile(r"(?<=://)[^\s/@]*@")


def is_server(uri: str) -> bool:
    """Whether the store is an MLflow server, which has its own UI and its own place for artifacts."""
    return uri.startswith(_SERVERS)


def without_password(uri: str) -> str:
    """The address without user and password before its host, and without passwords among its parameters."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return uri
    redacted = _SECRET_PARAMETER.sub(r"\1", rest[_length_of_user(rest) :])
    return f"{scheme}://{redacted}"


def _length_of_user(rest: str) -> int:
    """How many characters after ``://`` are user, password and @."""
    host = re.split("[/?#]", rest, maxsplit=1)[0]
    if "@" in host:
        return host.rindex("@") + 1
    # What stands where a port should is a password with a sign in it that should have been written %2F.
    if "@" in rest and re.search(r":(?!\d*$)[^\]:]*$", host):
        return rest.rindex("@") + 1
    return 0


def hidden(uri: str) -> str:
    """The address without its password, which is kept in the environment."""
    redacted = without_password(uri)
    if redacted == uri:
        return uri
    if is_server(uri):
        rest = uri.partition("://")[2]
        user, _, password = rest[: max(0, _length_of_user(rest) - 1)].partition(":")
        os.environ[_USER], os.environ[_PASSWORD] = unquote(user), unquote(password)
        if os.environ.get(_URI) == uri:
            os.environ[_URI] = redacted
    else:
        os.environ[_URI] = uri
    return redacted


def complete(uri: str) -> str:
    """The address with the password of a database that `hidden` has kept."""
    kept = os.environ.get(_URI, "")
    return kept if kept and not is_server(uri) and without_password(kept) == uri else uri


def hidden_in(arguments: Iterable[str]) -> list[str]:
    """A command line in which the address of the store has no password."""
    return [
        f"{before}{_KEY}{hidden(value)}" if key and before in ("", "+", "++") else argument
        for argument in arguments
        for before, key, value in [argument.partition(_KEY)]
    ]


def scrubbed(text: str) -> str:
    """A text of MLflow's or a database's without the passwords of addresses in it."""
    return _IN_A_TEXT.sub("", text)
