"""Passwords in the address of a store: removed as soon as it is read, and given only to what opens the store.

What is left of the address is all that a configuration, a job's folder, MLflow and a terminal ever see. The password of
a server goes where MLflow's client looks for it, so that the addresses that MLflow prints have none either; that of a
database stays in ``MLFLOW_TRACKING_URI``. Both are environment variables, which a job's own processes inherit.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from msaccel.errors import ConfigError

SQLITE = "sqlite:///"
_SERVERS = ("http://", "https://")
_URI, _USER, _PASSWORD = "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"
# Parameters of a database's address that are no secret; the values of all others are taken out.
_PUBLIC_PARAMETERS = {"sslmode", "charset", "driver", "mode", "cache", "timeout", "connect_timeout", "application_name"}
_SERVER = re.compile(r"https?://([\w.-]+|\[[\da-f:.]+\])(:\d+)?(/[^?#]*)?", re.I)
_OTHER_STORE = re.compile(
    r"(sqlite|file):///(?!:memory:).*"  # two slashes would be a host, which these have not; memory is gone with the job
    r"|(?!sqlite:|file:)[a-z][\w+.-]*://([\w.,-]|:\d+(?![\w.-])|\[[\da-f:.]+\])*([/?][^#]*)?"
    r"|file:[^:?@]*|(/(?!/)|\.{1,2}/).*|[^:?@]*",
    re.I | re.S,
)
_NO_PATH = re.compile(r"(?<!sqlite)(?<!file)://|https?:/(?!/)", re.I)  # a Path has made one slash of two
_SECRET_NAME = "(?:pass|pwd|secret|token|(?<!share)key|auth|cred|sig)"  # viewStateShareKey names a view of MLflow's
# Words that only contain one of these; they are taken out of a name, so what is beside them still counts.
_INNOCENT = re.compile(
    r"author(?!i)|bypass|compass|design|insight|key(board|frame|point|word)|(max|num)_?tokens|monkey|pass(ed|es|ive)"
    r"|sacred|sig(ma|moid|nal)|tokeniz",
    re.I,
)
# Names have at most so many characters: without a limit a text of question marks would take minutes.
_SECRET_IN_A_TEXT = re.compile(rf"([?&;][^\s=&;?]{{0,60}}{_SECRET_NAME}[^\s=&;?]{{0,60}}=)[^\s&;]*", re.I)


def is_server(uri: str) -> bool:
    """Whether the store is an MLflow server, which has its own UI and its own place for artifacts."""
    return uri.lower().startswith(_SERVERS)


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite store; None for any other store."""
    return Path(uri.removeprefix(SQLITE)) if uri.startswith(SQLITE) else None


def without_password(uri: str) -> str:
    """The address without user and password before its host, and without the values of parameters."""
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme.lower() in ("file", "sqlite"):  # a path, which may have any sign in it
        return uri
    place, mark, query = rest[_length_of_user(rest) :].partition("?")
    parameters = [parameter.partition("=") for parameter in re.split("[&;]", query)]
    kept = "&".join(
        f"{name}={value if name.lower() in _PUBLIC_PARAMETERS else ''}" for name, equals, value in parameters if equals
    )
    return f"{scheme}://{place}{mark}{kept}"


def _length_of_user(rest: str) -> int:
    """How many characters after ``://`` are user, password and @."""
    host = re.split("[/?#]", rest, maxsplit=1)[0]
    if "@" in host:
        return host.rindex("@") + 1
    # Anything but a port after the colon is part of a password with a character that should be written %2F.
    if "@" in rest and re.search(r":(?!\d*$)[^\]:]*$", host):
        return rest.rindex("@") + 1
    return 0


def hidden(uri: str) -> str:
    """The address without its password, which is kept in the environment.

    Raises:
        ConfigError: it is mistyped, so that it is unclear which part of it is a password.
    """
    redacted = without_password(uri)
    # In an address of Databricks, MLflow takes the user and password for names, and its messages show them.
    names_shown = redacted != uri and uri.lower().startswith("databricks")
    if names_shown or not (_SERVER if is_server(uri) else _OTHER_STORE).fullmatch(redacted):
        raise ConfigError(
            "tracking.uri is not understood, and not shown, since it may hold a password; write for example "
            f"http://HOST:5000 or sqlite:////FOLDER/mlflow.db, and set {_USER} and {_PASSWORD}."
        )
    if redacted == uri:
        return uri
    if is_server(uri):
        rest = uri.partition("://")[2]
        user, _, password = rest[: max(0, _length_of_user(rest) - 1)].partition(":")
        os.environ |= {name: unquote(part) for name, part in ((_USER, user), (_PASSWORD, password)) if part}
        if os.environ.get(_URI) == uri:
            os.environ[_URI] = redacted
    else:
        os.environ[_URI] = uri
    return redacted


def complete(uri: str) -> str:
    """The address of a database with the password that `hidden` has kept."""
    kept = os.environ.get(_URI, "")
    return kept if kept and not is_server(uri) and without_password(kept) == uri else uri


def has_password(text: str) -> bool:
    """Whether a text holds an address with a password."""
    return scrubbed(text) != text


def names_a_secret(name: str) -> bool:
    """Whether a variable with this name is likely to hold a password or other secret."""
    return re.search(_SECRET_NAME, _INNOCENT.sub(" ", name), re.I) is not None


def scrubbed(text: str) -> str:
    """A library's message, or one about what was typed, without the passwords of addresses in it."""
    kept = os.environ.get(_URI, "")
    if kept:
        text = text.replace(kept, without_password(kept))
    return _SECRET_IN_A_TEXT.sub(r"\1", re.sub(r"\S+", _without_user, text) if "@" in text else text)


def _without_user(word: re.Match[str]) -> str:
    """A word without what stands between :// and its last @."""
    text, end = word[0], word[0].rfind("@")
    found = _NO_PATH.search(text, 0, max(0, end))
    return f"{text[: found.end()]}{text[end + 1 :]}" if found else text
