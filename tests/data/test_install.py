"""A file is installed whole and right, or not at all."""

import hashlib
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msaccel.data.download.install import DownloadError, install, md5_of


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


class Breaking(io.RawIOBase):
    """A stream that delivers half of its content and then fails, as a lost connection does."""

    def __init__(self, content: bytes) -> None:
        self._chunks = [content[: len(content) // 2]]

    def read(self, size: int = -1) -> bytes:
        if not self._chunks:
            raise ConnectionResetError("connection reset")
        return self._chunks.pop()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=st.binary(max_size=200), old=st.none() | st.binary(max_size=9))
def test_installs_a_stream_over_whatever_was_there(tmp_path: Path, content: bytes, old: bytes | None) -> None:
    path = tmp_path / "file"
    path.unlink(missing_ok=True)
    if old is not None:
        path.write_bytes(old)
    install(io.BytesIO(content), path, md5(content))
    assert path.read_bytes() == content and md5_of(path) == md5(content)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("stream", [io.BytesIO(b"other"), Breaking(b"content")], ids=["damaged", "broken"])
def test_a_failure_leaves_what_was_there(tmp_path: Path, stream: io.BytesIO) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with pytest.raises((DownloadError, ConnectionResetError)):
        install(stream, path, md5(b"content"))
    assert path.read_bytes() == b"before" and list(tmp_path.iterdir()) == [path]


def test_a_stream_without_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msaccel.data.download.install.MAX_BYTES", 10)
    install(io.BytesIO(bytes(10)), tmp_path / "file", md5(bytes(10)))
    with pytest.raises(DownloadError, match="larger than 10 bytes"):
        install(io.BytesIO(bytes(11)), tmp_path / "other", md5(bytes(11)))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_no_file_has_no_digest(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert md5_of(tmp_path / "absent") is None
    assert md5_of(tmp_path / "file" / "below") is None
