"""Reports as a self-contained HTML page."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from jumpmq.spark.moves import Movement
from jumpmq.spark.spread import SpreadTest, Uniformity

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0 } th, td { padding: .2rem .8rem; text-align: right }
th { border-bottom: 1px solid #999 } td:first-child, th:first-child { text-align: left } svg { max-width: 100% }
"""

NAMED = 60
"""Maximum number of queues in a chart to label all; of more queues only some are labelled."""

LONGEST = 30
"""Maximum number of characters of a name in a chart."""


def uniformity_page(report: Uniformity, title: str) -> str:
    """Render a report on uniformity as HTML."""
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    axes = figure.add_subplot()
    places = range(len(report.shares))
    axes.bar(places, [one.messages for one in report.shares], label="messages")
    expected = [one.expected_messages for one in report.shares]
    axes.step([place - 0.5 for place in places] + [len(expected) - 0.5], [*expected, expected[-1]], "k--", where="post")
    step = max(1, len(report.shares) // NAMED)
    named = [(place, _name(one.queue)) for place, one in enumerate(report.shares) if place % step == 0]
    axes.set_xticks([place for place, _ in named], [name for _, name in named], rotation=90, parse_math=False)
    axes.set_ylabel("messages (dashed: expected)")
    parts = [
        _svg(figure),
        tests_table(report.tests),
        _table(
            ("queue", "weight", "keys", "expected", "messages", "expected"),
            [
                (
                    one.queue,
                    one.weight,
                    one.keys,
                    f"{one.expected_keys:,.0f}",
                    one.messages,
                    f"{one.expected_messages:,.0f}",
                )
                for one in report.shares
            ],
        ),
    ]
    if report.hot_keys:
        parts.append(
            f"<p>Without these keys, {report.hot_share_of_skew:.0%} of the messages' unevenness would be gone.</p>"
        )
        rows = [(one.key, one.queue, one.messages, f"{one.share:.2%}") for one in report.hot_keys]
        parts.append(_table(("hot key", "queue", "messages", "share"), rows))
    return _page(title, parts)


def buckets_page(found: Mapping[str, Sequence[SpreadTest]], title: str) -> str:
    """Render tests for several numbers of buckets as HTML tables, a table per hash function."""
    parts = []
    for function, tests in found.items():
        figure = Figure(figsize=(9, 3.5), layout="constrained")
        axes = figure.add_subplot()
        buckets = [one.buckets for one in tests]
        axes.plot(buckets, [one.statistic for one in tests], "o-", label="chi-squared")
        axes.plot(buckets, [one.critical_05 for one in tests], "--", label="p = 0.05")
        axes.plot(buckets, [one.critical_01 for one in tests], ":", label="p = 0.01")
        axes.set_xlabel("buckets")
        axes.legend()
        parts += [f"<h2>{escape(function)}</h2>", _svg(figure), tests_table(tests)]
    return _page(title, parts)


def movement_page(report: Movement, title: str) -> str:
    """Render a report on movement as HTML."""
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    axes = figure.add_subplot()
    shown = report.moves[:30]
    names = [f"{_name(str(one.source))} → {_name(str(one.target))}" for one in shown][::-1]
    axes.barh(range(len(shown)), [one.keys for one in shown][::-1])
    axes.set_yticks(range(len(shown)), names, parse_math=False)
    axes.set_xlabel("keys")
    summary = (
        f"<p>{report.moved_keys:,} of {report.keys:,} keys move ({report.moved:.2%}), with {report.moved_messages:,} "
        f"of {report.messages:,} messages. At least {report.least:.2%} of the keys have to.</p>"
    )
    rows = [(one.source, one.target, one.keys, one.messages) for one in report.moves]
    return _page(title, [summary, _svg(figure), _table(("from", "to", "keys", "messages"), rows)])


def tests_table(tests: Iterable[SpreadTest]) -> str:
    """Render tests as an HTML table."""
    head = ("over", "buckets", "chi-squared", "degrees", "p", "p = 0.05", "p = 0.01", "largest deviation")
    rows = [
        (
            one.over,
            one.buckets,
            f"{one.statistic:.3f}",
            one.degrees,
            f"{one.p_value:.3f}",
            f"{one.critical_05:.2f}",
            f"{one.critical_01:.2f}",
            f"{one.largest_deviation:.2%}",
        )
        for one in tests
    ]
    return _table(head, rows)


def save(page: str, file: Path) -> None:
    """Write a page to a file."""
    file.write_text(page, encoding="utf-8")


def _name(name: str) -> str:
    """Return a name shortened for a chart."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _page(title: str, parts: Iterable[str]) -> str:
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    return f"{head}<h1>{escape(title)}</h1>{''.join(parts)}</html>"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    titles = "".join(f"<th>{escape(one)}" for one in head)
    lines = "".join("<tr>" + "".join(f"<td>{_cell(value)}" for value in row) for row in rows)
    return f"<table><tr>{titles}{lines}</table>"


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


def _svg(figure: Figure) -> str:
    out = io.StringIO()
    with rc_context({"svg.fonttype": "none"}):  # text that can be searched and copied
        figure.savefig(out, format="svg")
    text = out.getvalue()
    return text[text.index("<svg") :]
