"""Rank tables survive writing and reading, merge, and are refused with the line at fault."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msaccel.__main__ import main
from msaccel.devices.ranktable import RankedDevice, RankTable, Server, check, merge, of_server
from msaccel.devices.ranktable_file import read, to_json, write
from msaccel.errors import CombinationError, ConfigError
from msaccel.schema import DeviceSettings

# As the tutorials print them; the second hides the addresses of its servers.
DIMENSION_REDUCTION = """\
{
    "version": "1.0",
    "server_count": "1",
    "server_list": [
        {
            "server_id": "10.155.111.140",
            "device": [
                {"device_id": "0","device_ip": "192.1.27.6","rank_id": "0"},
                {"device_id": "1","device_ip": "192.2.27.6","rank_id": "1"},
                {"device_id": "2","device_ip": "192.3.27.6","rank_id": "2"},
                {"device_id": "3","device_ip": "192.4.27.6","rank_id": "3"},
                {"device_id": "4","device_ip": "192.1.27.7","rank_id": "4"},
                {"device_id": "5","device_ip": "192.2.27.7","rank_id": "5"},
                {"device_id": "6","device_ip": "192.3.27.7","rank_id": "6"},
                {"device_id": "7","device_ip": "192.4.27.7","rank_id": "7"}],
             "host_nic_ip": "reserve"
        }
    ],
    "status": "completed"
}
"""
ADAPTIVE_SUMMATION = """\
{
    "version": "1.0",
    "server_count": "2",
    "server_list": [
        {
            "server_id": "10.*.*.*",
            "device": [
                {"device_id": "0","device_ip": "192.1.27.6","rank_id": "0"},
                {"device_id": "1","device_ip": "192.2.27.6","rank_id": "1"},
                {"device_id": "2","device_ip": "192.3.27.6","rank_id": "2"},
                {"device_id": "3","device_ip": "192.4.27.6","rank_id": "3"},
                {"device_id": "4","device_ip": "192.1.27.7","rank_id": "4"},
                {"device_id": "5","device_ip": "192.2.27.7","rank_id": "5"},
                {"device_id": "6","device_ip": "192.3.27.7","rank_id": "6"},
                {"device_id": "7","device_ip": "192.4.27.7","rank_id": "7"}],
            "host_nic_ip": "reserve"
        },
        {
            "server_id": "10.*.*.*",
            "device": [
                {"device_id": "0","device_ip": "192.1.27.8","rank_id": "8"},
                {"device_id": "1","device_ip": "192.2.27.8","rank_id": "9"},
                {"device_id": "2","device_ip": "192.3.27.8","rank_id": "10"},
                {"device_id": "3","device_ip": "192.4.27.8","rank_id": "11"},
                {"device_id": "4","device_ip": "192.1.27.9","rank_id": "12"},
                {"device_id": "5","device_ip": "192.2.27.9","rank_id": "13"},
                {"device_id": "6","device_ip": "192.3.27.9","rank_id": "14"},
                {"device_id": "7","device_ip": "192.4.27.9","rank_id": "15"}],
            "host_nic_ip": "reserve"
        }
    ],
    "status": "completed"
}
"""
CARDS = [f"192.1.27.{last},192.2.27.{last},192.3.27.{last},192.4.27.{last}" for last in (6, 7, 8, 9)]


def table_of(servers: int, ranks: int) -> RankTable:
    return RankTable(
        tuple(
            Server(
                f"10.0.0.{server + 1}",
                tuple(
                    RankedDevice(device, f"192.{device}.{server}.6", server * ranks + device) for device in range(ranks)
                ),
            )
            for server in range(servers)
        )
    )


def topology(servers: int, ranks: int, target: str = "Ascend") -> DeviceSettings:
    return DeviceSettings(
        name=f"{target.lower()}{servers * ranks}",
        target=target,
        servers=servers,
        ranks_per_server=ranks,
        **dict.fromkeys(("simulate", "threads", "server_rank", "master", "rank_table", "bucket_mb", "timeout_s")),
    )


tables = st.builds(
    lambda ids, counts, nic: merge(
        RankTable(
            (
                Server(
                    name,
                    tuple(RankedDevice(i, f"fd00:{server}::{i}", i) for i in range(counts[server % len(counts)])),
                    nic,
                ),
            )
        )
        for server, name in enumerate(ids)
    ),
    st.lists(
        st.ip_addresses().map(str) | st.from_regex(r"[a-z][a-z0-9._-]{0,20}", fullmatch=True),
        min_size=1,
        max_size=5,
        unique=True,
    ),
    st.lists(st.integers(1, 16), min_size=1, max_size=3),
    st.sampled_from(["reserve", "10.1.2.3", "fe80::1"]),
)


@given(tables)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, table: RankTable) -> None:
    path = tmp_path_factory.mktemp("tables") / "table.json"
    write(table, path)
    assert read(path) == table
    assert [file.name for file in path.parent.iterdir()] == ["table.json"]


@pytest.mark.parametrize("option", ["--device-ips", "--hccn"])
def test_the_table_of_dimension_reduction(tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    """Tutorial 003: one server of eight."""
    cards = ",".join(CARDS[:2])
    if option == "--hccn":
        lines = [f"address_{i}={address}\nnetmask_{i}=255.255.255.0" for i, address in enumerate(cards.split(","))]
        (tmp_path / "hccn.conf").write_text("\n".join(reversed(lines)))
        cards = str(tmp_path / "hccn.conf")
    assert main(["rank-table", "--servers", "10.155.111.140", option, cards]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(DIMENSION_REDUCTION)


def test_the_table_of_adaptive_summation(tmp_path: Path) -> None:
    """Tutorial 004: two servers of eight, once the hidden addresses of the servers are filled in."""
    output, cards = tmp_path / "16.json", [",".join(CARDS[:2]), ",".join(CARDS[2:])]
    arguments = ["rank-table", "--device", "ascend16", "--servers", "10.0.0.1,10.0.0.2", "--device-ips", *cards]
    assert main([*arguments, "--output", str(output)]) == 0
    filled = json.loads(ADAPTIVE_SUMMATION)
    for number, server in enumerate(filled["server_list"], start=1):
        server["server_id"] = f"10.0.0.{number}"
    assert json.loads(output.read_text()) == filled


def test_the_tutorials_tables_are_read(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(DIMENSION_REDUCTION)
    assert json.loads(to_json(read(path))) == json.loads(DIMENSION_REDUCTION)
    path.write_text(ADAPTIVE_SUMMATION)
    with pytest.raises(ConfigError, match=r'table.json, line 6: server_id "10\.\*\.\*\.\*" is no address or name'):
        read(path)


# In the text of a table of 2 × 8: the line at fault, what is replaced there and by what, and what is said.
DAMAGE = {
    "a rank twice": (10, '"rank_id": "2"', '"rank_id": "1"', "rank_id 1 stands already on line 9; give each its own."),
    "a rank of the other server": (23, '"rank_id": "9"', '"rank_id": "7"', "rank_id 7 stands already on line 15"),
    "a rank left out": (29, '"rank_id": "15"', '"rank_id": "16"', 'rank 15 belongs, since ranks count from 0'),
    "ranks from 1": (8, '"rank_id": "0"', '"rank_id": "99"', 'write "0".'),
    "a device twice": (11, '"device_id": "3"', '"device_id": "0"', "of this server stands already on line 8"),
    "an address twice": (22, "192.0.1.6", "192.0.0.6", "device_ip 192.0.0.6 stands already on line 8"),
    "a server twice": (20, "10.0.0.2", "10.0.0.1", "server_id 10.0.0.1 stands already on line 6"),
    "too few servers": (3, '"2"', '"3"', 'server_count is 3 and server_list holds 2 servers; write "2"'),
    "too many servers": (3, '"2"', '"1"', 'write "2" or list the others.'),
    "a number as the count": (3, '"2"', "2", 'server_count is a number; write a text in quotes, such as "0".'),
    "no number as the count": (3, '"2"', '"two"', 'server_count is "two"; write a whole number, such as "0".'),
    "a number of another script": (3, '"2"', '"２"', "write a whole number"),
    "a negative rank": (9, '"rank_id": "1"', '"rank_id": "-1"', 'rank_id is "-1"; write a whole number'),
    "a rank with a zero": (9, '"rank_id": "1"', '"rank_id": "01"', "write a whole number"),
    "a number as rank": (9, '"rank_id": "1"', '"rank_id": 1', "rank_id is a number; write a text in quotes"),
    "a number of many digits": (9, '"rank_id": "1"', f'"rank_id": {"9" * 9999}', "rank_id is a number"),
    "no address": (12, "192.4.0.6", "192.4.0.600", 'device_ip "192.4.0.600" is no IPv4 or IPv6 address'),
    "an empty address": (12, "192.4.0.6", "", 'device_ip "" is no IPv4 or IPv6 address'),
    "a name for an address": (12, "192.4.0.6", "card4", 'write one such as 192.1.27.6.'),
    "no address as server": (6, "10.0.0.1", "10.0.0.300", 'server_id "10.0.0.300" is no IPv4 or IPv6 address'),
    "no IPv6 address as server": (6, "10.0.0.1", "fe80::zz", 'server_id "fe80::zz" is no IPv4 or IPv6 address'),
    "no name as server": (6, "10.0.0.1", "node 0", 'server_id "node 0" is no address or name'),
    "no address of the host": (17, "reserve", "reserved", 'host_nic_ip "reserved" is no IPv4 or IPv6 address'),
    "null": (9, '"192.1.0.6"', "null", 'device_ip is null; write a text in quotes, such as "192.1.27.6".'),
    "true": (20, '"10.0.0.2"', "true", "server_id is true or false; write a text in quotes"),
    "an object as text": (2, '"1.0"', "{}", "version is an object; write a text in quotes"),
    "another version": (2, "1.0", "1.2", 'version is "1.2"; write "1.0".'),
    "not completed": (34, "completed", "initializing", 'status is "initializing"; write "completed".'),
    "no rank": (14, ', "rank_id": "6"', "", "an entry of device that begins here has no rank_id; add it."),
    "no address and no rank": (14, ', "device_ip": "192.6.0.6", "rank_id": "6"', "", "no device_ip and no rank_id"),
    "a misspelt key": (14, "device_ip", "device_pi", "device_pi is no key of an entry of device in version 1.0"),
    "a key of the pods": (17, "host_nic_ip", "container_ip", "container_ip is no key of an entry of server_list"),
    "a key twice": (14, '"rank_id"', '"device_id": "1", "rank_id"', "device_id stands already on line 14; keep one."),
    "a text for a device": (8, '{"device_id": "0"', '"", {"device_id": "0"', "is a text; write { } with device_id"),
    "a comma missing": (9, "},", "}", "this is not JSON (Expecting ',' delimiter); put the line right."),
    "a comma too many": (15, "}", "},", "this is not JSON"),
    "a quote missing": (13, '"5"', '"5', "this is not JSON"),
    "a comment": (13, "{", "// {", "this is not JSON"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_refused_with_its_line(tmp_path: Path, case: str) -> None:
    line, old, new, phrase = DAMAGE[case]
    lines = to_json(table_of(2, 8)).split("\n")
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new, 1)
    path = tmp_path / "table.json"
    path.write_text("\n".join(lines))
    with pytest.raises(ConfigError) as refusal:
        read(path)
    said = str(refusal.value)
    assert said.startswith(f"{path}, line {line}: ") and phrase in said
    assert said.endswith(".") and said.isprintable()


def test_a_key_on_a_line_of_its_own_is_named_by_that_line(tmp_path: Path) -> None:
    content = json.loads(to_json(table_of(2, 2)))
    content["server_list"][1]["device"][0]["device_ip"] = "192.0.0.6"
    path = tmp_path / "table.json"
    path.write_text(json.dumps(content, indent=2))
    lines = [number for number, line in enumerate(path.read_text().split("\n"), start=1) if "192.0.0.6" in line]
    with pytest.raises(ConfigError, match=f"line {lines[1]}: .* stands already on line {lines[0]};"):
        read(path)


@pytest.mark.parametrize(
    ("content", "line", "phrase"),
    [
        (b"", 1, "is not JSON"),
        (b"[]", 1, "the table is a list; write { } with version, server_count, server_list, status."),
        (b'\n{"version": "1.0"}', 2, "the table that begins here has no server_count and no server_list and no status"),
        (b'{\n"version": "\xff"}', 2, "this is no UTF-8 text; save the file as UTF-8."),
        (b"[\n" * 100_000, 100, "brackets are nested too deep"),
        (b"\n" * 1_000_001, 1_000_002, "the file goes on after 1 MB"),
        (b'{"version": "1.0", "server_count": "0",\n"server_list": [], "status": "completed"}', 2, "list is empty"),
        (
            b'{"version": "1.0", "server_count": "1",\n"server_list": "a", "status": "completed"}',
            2,
            "server_list is a text; write a list in [ ].",
        ),
        (
            b'{"version": "1.0", "server_count": "1",\n"status": "completed", "server_list": [\n'
            b'{"server_id": "a",\n"device": []}]}',
            4,
            "server a has no device; list one, or drop the server.",
        ),
    ],
)  # fmt: skip
def test_what_is_no_table(tmp_path: Path, content: bytes, line: int, phrase: str) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refusal:
        read(path)
    assert str(refusal.value).startswith(f"{path}, line {line}: ") and phrase in str(refusal.value)


def test_a_file_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(ConfigError, match=f"{re.escape(str(path))} cannot be read"):
            read(path)
    for path in (tmp_path, tmp_path / "none" / "table.json", Path("/dev/null")):
        with pytest.raises(ConfigError, match=f"{re.escape(str(path))} cannot be written"):
            write(table_of(1, 1), path)
    assert list(tmp_path.iterdir()) == []


@given(st.integers(0, 2000), st.text(max_size=3))
def test_any_damage_is_a_sentence(tmp_path_factory: pytest.TempPathFactory, at: int, text: str) -> None:
    whole = to_json(table_of(2, 8))
    path = tmp_path_factory.mktemp("tables") / "table.json"
    for damaged in (whole[:at], whole[:at] + text + whole[at:], whole[:at] + text + whole[at + len(text) + 1 :]):
        path.write_text(damaged, encoding="utf-8", errors="replace")
        try:
            read(path)
        except ConfigError as error:
            assert str(error).isprintable()


def test_a_bom_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(b"\xef\xbb\xbf" + to_json(table_of(2, 8)).replace("\n", "\r\n").encode())
    assert read(path) == table_of(2, 8)


def test_merging_counts_ranks_in_the_order_given() -> None:
    whole = table_of(3, 4)
    parts = []
    for server in whole.servers:
        devices = tuple(replace(device, rank_id=device.device_id) for device in server.devices)
        parts.append(RankTable((replace(server, devices=devices),)))
    assert merge(parts) == whole
    turned = merge([parts[2], merge(parts[:2])])
    assert [server.server_id for server in turned.servers] == ["10.0.0.3", "10.0.0.1", "10.0.0.2"]
    assert [device.rank_id for server in turned.servers for device in server.devices] == list(range(12))


def test_the_command_merges_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, both = (tmp_path / name for name in ("a.json", "b.json", "both.json"))
    write(RankTable(table_of(2, 8).servers[:1]), first)
    write(merge([RankTable(table_of(2, 8).servers[1:])]), second)
    arguments = ["rank-table", "--device", "ascend16", "--merge"]
    assert main([*arguments, str(first), str(second), "--output", str(both)]) == 0
    assert read(both) == table_of(2, 8)
    assert capsys.readouterr().out == f"{both}: 2 servers with 16 ranks\n"

    assert main([*arguments, str(first), str(first)]) == 2
    assert capsys.readouterr().err == f"--merge names {first} twice; name the table of each server once.\n"
    second.write_text(second.read_text().replace("192.3.1.6", "192.3.0.6"))
    assert main([*arguments, str(first), str(second)]) == 2
    assert f"{second}, line 11: device_ip 192.3.0.6 stands already in {first}, line 11;" in capsys.readouterr().err


def test_the_topology_is_compared(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    write(table_of(2, 8), path)
    table = read(path)
    check(table, topology(2, 8))
    with pytest.raises(CombinationError, match="line 4: the table lists 2 servers where device=ascend8 has 1; write"):
        check(table, topology(1, 8))
    with pytest.raises(CombinationError, match=r"line 7: server 10.0.0.1 lists 8 ranks where device=ascend8 has 4 on"):
        check(table, topology(2, 4))
    with pytest.raises(CombinationError, match="device=cpu16 runs on CPU, which has no rank table; write one such"):
        check(table, topology(2, 8, "CPU"))


def test_the_ranks_of_a_server() -> None:
    assert of_server(table_of(1, 2), None) == of_server(table_of(1, 2), 0) == [(0, 0), (1, 1)]
    assert of_server(table_of(2, 2), 1) == [(2, 0), (3, 1)]
    with pytest.raises(
        CombinationError, match=r"write device\.server_rank=0 on the first of them, up to 1 on the last"
    ):
        of_server(table_of(2, 2), None)
    for rank in (2, -1):
        with pytest.raises(CombinationError, match=f"device.server_rank={rank} is not in the rank table of 2 servers"):
            of_server(table_of(2, 2), rank)


TWO = ["--device", "ascend16", "--servers", "10.0.0.1,10.0.0.2"]
ONE = ["--servers", "10.0.0.1", "--device-ips"]
EIGHT, OTHERS = ",".join(CARDS[:2]), ",".join(CARDS[2:])
REFUSED = {
    "unknown device": (["--device", "ascend9", *ONE, EIGHT], "--device=ascend9 does not exist; write --device with"),
    "no NPUs": (["--device", "cpu4", *ONE, CARDS[0]], "device=cpu4 runs on CPU, which has no rank table"),
    "a server too few": ([*TWO[:3], "10.0.0.1", "--device-ips", EIGHT], "--servers is given for 1 of the 2 servers"),
    "a list too few": ([*TWO, "--device-ips", EIGHT], "--device-ips is given for 1 of the 2 servers"),
    "an address too few": ([*ONE, CARDS[0]], "--device-ips of server 10.0.0.1 names 4 of 8 addresses"),
    "an empty server": (["--servers", "", "--device-ips", EIGHT], '--servers: server_id "" is no'),
    "no addresses": (ONE[:2], "write --device-ips or --hccn for each server too."),
    "no address": ([*ONE, EIGHT.replace("192.1.27.7", "x")], '--device-ips of server 10.0.0.1: device_ip "x" is no'),
    "an address twice": ([*TWO, "--device-ips", EIGHT, EIGHT], "stands already in --device-ips of server 10.0.0.1"),
    "a server twice": ([*TWO[:3], "a,a", "--device-ips", EIGHT, OTHERS], "--servers: server_id a stands already in"),
    "addresses of nothing": (["--check", "x.json", "--device-ips", EIGHT], "have no effect without --servers"),
    "output of a check": (["--check", "x.json", "--output", "y.json"], "--output has no effect with --check"),
    "nothing to check": (["--check", "x.json"], "x.json cannot be read"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_command_refuses_in_one_sentence(capsys: pytest.CaptureFixture[str], case: str) -> None:
    arguments, phrase = REFUSED[case]
    assert main(["rank-table", *arguments]) == 2
    ended = capsys.readouterr()
    assert phrase in ended.err and len(ended.err.splitlines()) == 1 and ended.out == ""


def test_the_command_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "table.json"
    write(table_of(2, 8), path)
    assert main(["rank-table", "--check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path} is right: 2 servers with 16 ranks\n"
    assert main(["rank-table", "--check", str(path), "--device", "ascend8"]) == 2
    assert "line 4: the table lists 2 servers where device=ascend8 has 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "phrase"),
    [
        ("address_0=192.1.27.6\naddress_0=192.1.27.7\n", "line 2: address_0 stands already on line 1; keep one"),
        ("address_0=192.1.27.6\naddress_2=192.1.27.7\n", "line 2: no line address_1= follows, and 8 are needed"),
        ("", "line 1: no line address_0= follows"),
        ("".join(f"address_{i}=192.{i}.27.x\n" for i in range(8)), 'line 1: device_ip "192.0.27.x" is no IPv4'),
    ],
)  # fmt: skip
def test_hccn_conf_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, phrase: str
) -> None:
    path = tmp_path / "hccn.conf"
    path.write_text(content)
    assert main(["rank-table", "--servers", "10.0.0.1", "--hccn", str(path)]) == 2
    assert f"{path}, {phrase}" in capsys.readouterr().err


def test_a_table_that_is_refused_leaves_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    write(table_of(1, 8), path)
    before = path.read_bytes()
    assert main(["rank-table", *ONE, CARDS[0], "--output", str(path)]) == 2
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
