"""A report as one HTML page that needs nothing else: styles and plots stand in it, and it asks no network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from msaccel.compare.fairness import counted
from msaccel.compare.groups import Method
from msaccel.compare.measures import ACCURACY, COST, FINAL, SPEED, THROUGHPUT
from msaccel.compare.render import format, plots
from msaccel.compare.render.curves import MOST_METHODS, MOST_SEEDS
from msaccel.compare.report import Report, Section
from msaccel.compare.verdicts import DOWN, UP, Verdict, Versus

STYLE = Path(__file__).with_name("style.css")
_MOST_NAMES = 50


def page(report: Report, drawn: Mapping[Section, Mapping[str, str]], made: str) -> str:
    """The page.

    Args:
        drawn: the plots of the sections that have some, as SVG by title.
        made: when and from what the report was made, a sentence.
    """
    body = [
        "<h1>Does it help, by how much, how sure?</h1>",
        f'<p class="faint">{escape(made)} Brackets hold 95 % intervals (Welch); p is after Holm’s correction over the '
        "verdicts of a question; a sign ± is a standard deviation over n seeds.</p>",
    ]
    for section in report.sections:
        body += _section(section, drawn.get(section, {}))
    body += _unfinished(report)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>msaccel comparison</title>\n'
        f'<link rel="icon" href="data:,">\n<style>\n{STYLE.read_text()}</style>\n</head>\n<body>\n'
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _section(section: Section, drawn: Mapping[str, str]) -> Iterator[str]:
    yield f"<h2>{escape(section.title)}</h2>"
    if section.versus:
        yield f'<div class="answers">{"".join(map(_answer, section.versus))}</div>'
    if section.refused:
        yield _sentences("Not compared", [refusal.sentence for refusal in section.refused])
    if section.flags or section.notes:
        yield _sentences("Read with care", [*section.flags, *section.notes])
    yield "<h3>Every method</h3>"
    yield _methods(section)
    extra = format.against(section.found, [versus.estimates for versus in section.versus])
    if extra:
        heads = ["method", "baseline", *(measure.heading for measure in extra)]
        rows = [
            [
                versus.pair.method.label,
                versus.pair.name,
                *(format.estimate(versus.estimates.get(m.name)) for m in extra),
            ]
            for versus in section.versus
        ]
        yield "<h3>Against the baseline, without a verdict</h3>"
        yield _table(heads, [[escape(cell) for cell in row] for row in rows], texts=2)
    if drawn:
        yield "<h3>Plots</h3>"
        yield _legend(section.found.methods[:MOST_METHODS])
        figures = (f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>" for title, svg in drawn.items())
        yield f'<div class="plots">{"".join(figures)}</div>'
        yield f'<p class="faint">Curves are of the first {MOST_SEEDS} seeds of a method, a line each.</p>'


def _answer(versus: Versus) -> str:
    found = versus.estimates
    cost = found.get(COST.name)
    lines = [
        ("accuracy", _coloured(versus.verdicts[ACCURACY])),
        ("", escape(format.estimate(found.get(FINAL.name)))),
        ("speed", _coloured(versus.verdicts[SPEED])),
        ("", escape(format.estimate(found.get(THROUGHPUT.name)))),
        ("cost", escape(f"{format.factor(cost.value)} × the forward-equivalents") if cost else ""),
    ]
    listed = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in lines if text and text != format.NONE)
    title = f'{escape(versus.pair.method.label)} <span class="faint">against none: {escape(versus.pair.name)}</span>'
    return f'<div class="answer"><h4>{title}</h4><dl>{listed}</dl></div>'


def _coloured(verdict: Verdict) -> str:
    kind = "up" if verdict.words in UP.values() else "down" if verdict.words in DOWN.values() else ""
    return f'<span class="{kind}">{escape(format.verdict(verdict))}</span>'


def _methods(section: Section) -> str:
    rows = []
    for place, method in enumerate(section.found.methods):
        cells = [escape(cell) for cell in format.row(method, section.found)]
        rows.append([_numbered(place) + cells[0], *cells[1:]])
    return _table(format.heads(section.found), rows, texts=len(section.found.methods[0].settings))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> str:
    """A table whose cells are HTML already; the first `texts` columns hold words."""

    def line(cells: Sequence[str], tag: str) -> str:
        kinds = [' class="text"' if place < texts else "" for place in range(len(cells))]
        return f"<tr>{''.join(f'<{tag}{kind}>{cell}</{tag}>' for cell, kind in zip(cells, kinds, strict=True))}</tr>"

    body = "".join(line(row, "td") for row in rows)
    headings = line([escape(head) for head in heads], "th")
    return f'<div class="wide" tabindex="0"><table><thead>{headings}</thead><tbody>{body}</tbody></table></div>'


def _legend(methods: Sequence[Method]) -> str:
    entries = (f"<span>{_numbered(place)}{escape(method.label)}</span>" for place, method in enumerate(methods))
    return f'<div class="legend">{"".join(entries)}</div>'


def _numbered(place: int) -> str:
    """The method's colour and number in the plots; those that are not drawn have none."""
    if place >= MOST_METHODS:
        return ""
    return f'<span class="swatch" style="background:{plots.colour(place)}"></span>{place + 1}&ensp;'


def _sentences(title: str, sentences: Sequence[str]) -> str:
    return f"<h3>{title}</h3><ul>{''.join(f'<li>{escape(sentence)}</li>' for sentence in sentences)}</ul>"


def _unfinished(report: Report) -> Iterator[str]:
    if report.unfinished:
        names = ", ".join(f"{run.name} ({run.status})" for run in report.unfinished[:_MOST_NAMES])
        rest = len(report.unfinished) - _MOST_NAMES
        more = f" and {rest} more" if rest > 0 else ""
        yield f"<h2>Not finished, never averaged: {escape(counted(report.unfinished))}</h2>"
        yield f"<p>{escape(names)}{more}.</p>"
