"""Calls to MLflow are tried again while its server does not answer or its store is locked.

MLflow's own client retries too: by default up to four minutes inside a single call, with pauses that grow to two
minutes. Here it is limited to one more try (an open connection may have gone stale), and the waiting is done in this
module, which can tell the user that it waits and can be given a time limit.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable
from typing import TypeVar

from mlflow.exceptions import MlflowException

from msaccel.errors import DISK_ERRORS, TrackingError, UserError, on_one_line
from msaccel.tracking.credentials import scrubbed

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

SECONDS = 120.0  # that a single call waits: long enough for a server to restart
SECONDS_BETWEEN_TRIES = 2.0
# MLflow's codes of errors that waiting does not cure. BAD_REQUEST is not among them: a server also answers with it when
# it has lost the connection to its database.
_PERMANENT = {
    "RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", "INVALID_STATE", "PERMISSION_DENIED", "UNAUTHENTICATED",
    "ENDPOINT_NOT_FOUND",
}  # fmt: skip
_LONGEST = 200  # characters of a reason
_KNOWN = (  # in MLflow's messages, which are much longer
    r"\[Errno -?\d+\] ([\w ]+)",
    r"\(sqlite3\.\w+\) ([^\n]+)",
    r"(too many \d+ error responses)",
    r"(Read timed out)",
    r"(timed out)",
)


class StoreRemovedError(TrackingError):
    """The SQLite file of the store is not there any more; SQLite itself says that it is read-only."""


def quiet_mlflow() -> None:
    """Limits MLflow's client in this process to one more try, and keeps it from writing what says nothing to a user.

    Variables that the user has set stay.
    """
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    # They would write a traceback, or a line for each try, where one sentence is printed.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)


def call_with_retries(call: Callable[[], Answer], what: str, seconds: float = SECONDS) -> Answer:
    """What a call returns, tried again every two seconds while MLflow does not answer.

    Args:
        what: what the call does, for the message that it is waited for.
        seconds: time after which the last error is raised; a permanent one is raised at once.
    """
    until, announced = time.monotonic() + seconds, False
    while True:
        try:
            return call()
        except Exception as error:
            if is_permanent(error) or time.monotonic() + SECONDS_BETWEEN_TRIES > until:
                raise
            if not announced:
                _log.warning("%s: MLflow does not answer (%s); waiting for it.", what, reason(error))
                announced = True
        time.sleep(SECONDS_BETWEEN_TRIES)


def is_permanent(error: BaseException) -> bool:
    """Whether waiting is no use: MLflow refuses, or a file of this machine cannot be written."""
    if isinstance(error, MlflowException):
        return error.error_code in _PERMANENT
    if isinstance(error, (UserError, TypeError, AttributeError)):
        return True
    return isinstance(error, OSError) and error.errno in DISK_ERRORS


def is_lost(error: BaseException) -> bool:
    """Whether the run is not in the store any more, so that it cannot be resumed."""
    if isinstance(error, MlflowException) and error.error_code == "RESOURCE_DOES_NOT_EXIST":
        return True
    return isinstance(error, StoreRemovedError)


def reason(error: BaseException) -> str:
    """Why a call failed, short enough for a sentence, and without the password that an address may hold."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    text = str(error)
    for known in _KNOWN:
        if found := re.search(known, text):
            return found[1]
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return on_one_line(scrubbed(first.strip()), _LONGEST)
