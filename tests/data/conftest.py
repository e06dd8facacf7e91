"""A data set of a few images, a mirror on the loopback interface and registry clients made of scripts."""

import gzip
import hashlib
import struct
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from msaccel.data.download.fetch import locate
from msaccel.data.download.sources import Package, Source
from msaccel.data.sets import mnist
from msaccel.errors import DataError


def to_idx(array: NDArray[np.uint8]) -> bytes:
    """The array as an idx file."""
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def make_files(train: int = 6, test: int = 3) -> dict[str, bytes]:
    """The four files of a data set of random images."""
    rng = np.random.default_rng(0)
    files = {}
    for part, size in (("train", train), ("t10k", test)):
        images = rng.integers(256, size=(size, 28, 28), dtype=np.uint8)
        files[f"{part}-images-idx3-ubyte"] = to_idx(images)
        files[f"{part}-labels-idx1-ubyte"] = to_idx((np.arange(size) % 10).astype(np.uint8))
    return files


def source_of(files: dict[str, bytes], *mirrors: str) -> Source:
    """A source in MNIST's place that knows the digests of these files; its registry package is called ``tiny``."""
    digests = {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
    return Source("mnist", digests, Package("npm", "tiny@1", "package/{}"), mirrors)


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    """Writes the files into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@dataclass
class Mirror:
    """What a loopback server answers, and how often each file was asked for.

    A body in ``bodies`` takes the place of the zipped file, None answers 404. Every answer comes after
    ``delay`` seconds; with ``stall_after``, only so many bytes come, and then nothing until ``stop``.
    """

    url: str
    files: dict[str, bytes]
    bodies: dict[str, bytes | None] = field(default_factory=dict)
    delay: float = 0.0
    stall_after: int | None = None
    requests: Counter[str] = field(default_factory=Counter)
    stop: threading.Event = field(default_factory=threading.Event)

    def answer(self, name: str) -> bytes | None:
        self.requests[name] += 1
        if name in self.bodies:
            return self.bodies[name]
        content = self.files.get(name)
        return None if content is None else gzip.compress(content, 1)


@pytest.fixture
def files() -> dict[str, bytes]:
    return make_files()


@pytest.fixture
def mirrors(files: dict[str, bytes]) -> Iterator[list[Mirror]]:
    """Two mirrors that hold all files, each on a free port."""
    servers = [_serve(files), _serve(files)]
    yield [mirror for mirror, _ in servers]
    for mirror, server in servers:
        mirror.stop.set()
        server.shutdown()
        server.server_close()


def _serve(files: dict[str, bytes]) -> tuple[Mirror, ThreadingHTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = mirror.answer(self.path.removeprefix("/data/").removesuffix(".gz"))
            if body is None:
                self.send_error(404)
                return
            mirror.stop.wait(mirror.delay)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: mirror.stall_after])
            if mirror.stall_after is not None:
                self.wfile.flush()
                mirror.stop.wait()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    mirror = Mirror(f"http://127.0.0.1:{server.server_port}/data/", files)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    return mirror, server


@pytest.fixture
def source(files: dict[str, bytes], mirrors: list[Mirror], clients: Path) -> Source:
    """Both mirrors answer, and no registry client is installed."""
    return source_of(files, *(mirror.url for mirror in mirrors))


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def write_client(folder: Path, name: str, code: str) -> None:
    """Installs a Python script as a command line program."""
    script = folder / name
    script.write_text(f"#!{sys.executable} -IS\nimport pathlib, shutil, sys, time\n{code}\n")
    script.chmod(0o755)


@pytest.fixture(scope="session")
def real_mnist() -> Path:
    """The real MNIST, from the cache every job uses."""
    try:
        return locate(mnist.SOURCE, None, "~/.cache/msaccel")
    except DataError as error:
        pytest.skip(str(error))


def assert_one_sentence(error: pytest.ExceptionInfo[DataError], *words: str) -> None:
    """Every refusal is one line: what is wrong, a colon, what to do; and it holds these words."""
    message = str(error.value)
    assert "\n" not in message and not message.endswith(".") and ": " in message
    for word in words:
        assert word in message
