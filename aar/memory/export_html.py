"""A session as one HTML file: no script, nothing loaded from elsewhere, readable on a phone."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from aar.memory.export_items import Heading, Item
from aar.protocol.images import IMAGE_TYPES

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")
_CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

_STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1c1e21;--dim:#667;--line:#d8dce2;--box:#f5f6f8;--user:#e8f0fe;
--bad:#b3261e;--add:#e6f6e8;--del:#fdeaea}
@media(prefers-color-scheme:dark){:root{--bg:#15171a;--fg:#e4e6ea;--dim:#99a1ad;--line:#333840;--box:#1e2126;
--user:#1d2b44;--bad:#ff8a80;--add:#16351d;--del:#43191b}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:52rem;padding:1rem;background:var(--bg);color:var(--fg);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.4rem}
dl{display:grid;grid-template-columns:auto 1fr;gap:.1rem .8rem;color:var(--dim);font-size:.85rem}
dd{margin:0}
pre,code{font:13px/1.45 ui-monospace,monospace}
pre{background:var(--box);padding:.6rem;border-radius:.4rem;overflow-x:auto;white-space:pre-wrap;
margin:.4rem 0}
article{margin:1rem 0}
.user{background:var(--user);border-radius:.6rem;padding:.1rem .9rem}
.note{color:var(--dim);font-size:.85rem;white-space:pre-wrap}
.sub{margin-left:1rem;border-left:3px solid var(--line);padding-left:.6rem}
details{border:1px solid var(--line);border-radius:.4rem;padding:.2rem .6rem;margin:.4rem 0}
summary{cursor:pointer;padding:.3rem 0}
.facts{color:var(--dim);font-size:.8rem}
.bad{color:var(--bad)}
.add{background:var(--add)}.del{background:var(--del)}.add,.del{display:block}
img{max-width:100%}
table{border-collapse:collapse;display:block;overflow-x:auto}
td,th{border:1px solid var(--line);padding:.2rem .5rem}
"""


def to_html(top: Heading, parts: Iterable[Item]) -> Iterator[str]:
    """Yield the pieces of an HTML document. All text is escaped; Markdown holds no raw HTML and no images."""
    title = html.escape(top.title or "Session")
    yield (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_CSP}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style></head>\n<body>\n<header><h1>{title}</h1>\n<dl>\n"
    )
    for name, value in top.rows():
        yield f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>\n"
    yield "</dl></header>\n<main>\n"
    markdown = _markdown()
    for item in parts:
        yield _article(item, markdown)
    yield "</main>\n</body></html>\n"


def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # An image would be fetched from elsewhere by whoever opens the page.
    return MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


def _article(item: Item, markdown: Any) -> str:
    classes = item.kind if item.agent_id == "main" else f"{item.kind} sub"
    return f'<article class="{classes}" id="e{item.seq}">{_body(item, markdown)}</article>\n'


def _body(item: Item, markdown: Any) -> str:
    if item.kind in ("user", "assistant"):
        cut_off = '<p class="facts">This answer was cut off.</p>' if item.facts else ""
        return f"{markdown.render(item.text)}{_images(item)}{cut_off}"
    if item.kind == "thinking":
        return f"<details><summary>Thinking</summary><pre>{html.escape(item.text)}</pre></details>"
    if item.kind == "note":
        bad = ' class="bad"' if item.failed else ""
        line = f"<strong{bad}>{html.escape(item.title)}</strong> {html.escape(item.text)}"
        # A long summary is folded, one line is not.
        if item.text.count("\n") > 5:
            return f"<details><summary>{html.escape(item.title)}</summary>{html.escape(item.text)}</details>"
        return line
    return _tool(item)


def _tool(item: Item) -> str:
    facts = html.escape(" · ".join(item.facts))
    bad = ' class="bad"' if item.failed else ""
    failed = " failed" if item.failed else ""
    parts = [
        f"<details><summary><code{bad}>{html.escape(item.title)}</code>{failed} "
        f'<span class="facts">{facts}</span></summary>',
        f"<pre>{html.escape(item.arguments)}</pre>",
    ]
    if item.diff:
        parts.append(f"<pre>{_diff(item.diff)}</pre>")
    if item.text:
        parts.append(f"<pre>{html.escape(item.text)}</pre>")
    return "".join([*parts, _images(item), "</details>"])


def _diff(text: str) -> str:
    lines: list[str] = []
    for line in text.splitlines():
        safe = html.escape(line)
        if line.startswith("+") and not line.startswith("+++"):
            lines.append(f'<span class="add">{safe}</span>')
        elif line.startswith("-") and not line.startswith("---"):
            lines.append(f'<span class="del">{safe}</span>')
        else:
            lines.append(safe + "\n")
    return "".join(lines)


def _images(item: Item) -> str:
    good = [(kind, data) for kind, data in item.images if kind in IMAGE_TYPES and _BASE64.fullmatch(data)]
    return "".join(f'<p><img alt="image" src="data:{kind};base64,{data}"></p>' for kind, data in good)
