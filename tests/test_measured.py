"""What the READMEs say was measured is what the tables of `benchmarks/` say."""

import runpy

from msaccel.files import ROOT

ZOO = runpy.run_path(str(ROOT / "benchmarks" / "zoo_summary.py"))
TABLE = """
| network | MindSpore, ms | of that in reference kernels | accelerated, ms | times as fast | PyTorch, ms | PyTorch ÷ … |
|---|---|---|---|---|---|---|
| one | 600 | 97% | 20 (19 to 21) | 30.0 | 24 (22 to 25) | 1.20 |
| two | 300 | 90% | 30 (29 to 31) | 10.0 | 28 (27 to 29) | 0.93 |
| three | 100 | 89% | 40 (39 to 41) | 2.5 | 30 (28 to 31) | 0.75 |
| four | 60 | 0% | 20 (20 to 20) | 3.0 | none |  |
"""


def test_the_summary_of_other_peoples_networks() -> None:
    table = (ROOT / "benchmarks" / "zoo.md").read_text()
    assert len(ZOO["read"](table)) == table.count("\n| ") - 1 == 13
    for path in ZOO["READMES"]:
        assert f"<!-- zoo -->\n{ZOO['summary'](table)}\n<!-- /zoo -->" in path.read_text()


def test_what_a_summary_counts() -> None:
    said = " ".join(ZOO["summary"](TABLE).split())
    assert "2.5 to 30 times as fast (median 6.5) over 4 networks of MindCV" in said
    assert "10 to 30 times as fast (median 20) over the 2 in which" in said and "or more (one and two)" in said
    assert "2.5 to 3.0 times as fast (median 2.8) over the others" in said
    assert "0.75 to 1.20 times as fast (median 0.93) as that of PyTorch eager over the 3 that" in said
    assert "vary one are faster than there, and ❗ three slower" in said, "of two and PyTorch the rounds overlap"
