"""Errors that a user can cause: each message is one sentence that names the key and what to do; words for them."""

from __future__ import annotations

import errno

DISK_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENOENT,
     errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}
)  # fmt: skip
_ANOTHER = "write another path, or move what is there"
_MENDS = {
    errno.ENAMETOOLONG: "write a shorter name",
    errno.EEXIST: _ANOTHER,
    errno.ENOTDIR: _ANOTHER,
    errno.EISDIR: _ANOTHER,
}


def on_one_line(text: str, limit: int = 60) -> str:
    """The user's text cut to a length that fits a sentence, with control characters escaped."""
    return printable(text if len(text) <= limit else f"{text[:limit]}…")


def printable(text: str, kept: str = "") -> str:
    """The text with escape codes, line breaks and whatever else a terminal may obey written out, such as `\\x1b`.

    Args:
        kept: characters that stay.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in kept else one.encode("unicode_escape").decode("ascii") for one in text
    )


def counted(number: float, noun: str) -> str:
    """`1 rank` or `16 ranks`."""
    return f"{number:.15g} {noun}{'' if number == 1 else 's'}"


class UserError(Exception):
    """An error that the user can correct; shown as one sentence, without a traceback."""


class ConfigError(UserError):
    """A key, type, range or option that is wrong whatever the other keys say."""


class CombinationError(UserError):
    """Settings that are valid by themselves but contradict each other."""


class DataError(UserError):
    """Data that is missing, damaged or not of the expected kind."""


class CheckpointError(UserError):
    """A checkpoint that is missing, damaged or of another model."""


class TrainingError(UserError):
    """Training that cannot continue, such as a loss that is not finite."""


class DivergedError(TrainingError):
    """Gradients that were not finite ended the job: the method, not the machine, has failed."""


class TrackingError(UserError):
    """MLflow or the disk did not store what a job must keep."""


def of_the_disk(error: OSError) -> str:
    """The sentence for a file that could not be written or read; empty for any other error."""
    if error.errno not in DISK_ERRORS:
        return ""
    name = on_one_line(str(error.filename or "a file"), 200)
    mend = _MENDS.get(error.errno or 0, "make room or allow it")
    return f"{name} could not be written or read ({error.strerror}); {mend}."
