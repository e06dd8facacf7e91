"""The errors a user can cause: each message is one sentence that names the key and the mend."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OF_A_DISK = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENOENT,
     errno.ENOTDIR, errno.EISDIR, errno.EEXIST}
)  # fmt: skip


def on_one_line(text: str, limit: int = 60) -> str:
    """A text of the user's, with control characters escaped and cut to a length that fits a sentence."""
    short = text if len(text) <= limit else f"{text[:limit]}…"
    return short if short.isprintable() else short.encode("unicode_escape").decode()


class UserError(Exception):
    """Something the user can put right; shown as one sentence, without a traceback."""


class ConfigError(UserError):
    """A key, type, range or option that can never be right, whatever the other keys say."""


class CombinationError(UserError):
    """Settings that are right by themselves and contradict each other."""


class DataError(UserError):
    """Data that is missing, damaged or of another kind than announced."""


class CheckpointError(UserError):
    """A checkpoint that is missing, damaged or of another model."""


class TrainingError(UserError):
    """Training that cannot go on, such as a loss that is not finite."""


class TrackingError(UserError):
    """MLflow, or the disk, did not take what a job has to keep."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Puts the file's name into an error of the disk that has none: a full one does not say what was written."""
    try:
        yield
    except OSError as error:
        if error.strerror and not error.filename:
            error.filename = str(path)
        raise


def of_the_disk(error: OSError) -> str:
    """The sentence for a file that could not be written or read; nothing where the error is of another kind."""
    if error.errno not in OF_A_DISK:
        return ""
    return f"{error.filename or 'a file'} could not be written or read ({error.strerror}); make room or allow it."
