"""The pages in docs/ hang together: each is listed, links lead somewhere, examples are what they say."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.docs import FOLDER, load_script

PAGES = sorted(FOLDER.glob("*.md"))
README = FOLDER.parent / "README.md"


def anchors(page: Path) -> set[str]:
    """Return the names of a page's headings, as they are linked."""
    found = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", [*PAGES, README], ids=lambda page: page.name)
def test_links_to_pages_and_headings_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_the_index_lists_every_page() -> None:
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if page.name != "index.md" and f"({page.name})" not in index] == []


def test_examples_call_commands_and_options_that_exist() -> None:
    commands = list(load_script("generate_reference").commands())
    names = {words[0] for words, _ in commands} | {"--version", "--help", "-h"}
    for page in [*PAGES, README]:
        for block in re.findall(
            r"```(?:sh|console|yaml)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL
        ):
            for word in re.findall(r"(?:^|[|;&(] ?|\$ |run: )aar ([a-z-]+)", block, re.MULTILINE):
                assert word in names, (page.name, word)
    assert len(commands) > 30


@pytest.mark.skipif(shutil.which("sh") is None, reason="no sh")
@pytest.mark.parametrize("page", [FOLDER / "start.md", FOLDER / "ci.md"], ids=lambda page: page.name)
def test_shell_examples_can_be_parsed(page: Path) -> None:
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        checked = subprocess.run(["sh", "-n"], input=block, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, ""), block


def test_the_python_example_of_a_driver_compiles() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (FOLDER / "ci.md").read_text(encoding="utf-8"), re.DOTALL)
    compile(example, "ci.md", "exec")
    assert "--input" in example
