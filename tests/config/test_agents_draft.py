"""A first AGENTS.md says what files say, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from aar.config.agents_draft import draft_agents


def make(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return draft_agents(root, sorted(files))


def test_a_python_project(tmp_path: Path) -> None:
    told = make(
        tmp_path,
        {
            "pyproject.toml": '[project]\nname = "shop"\ndescription = "Sells things."\n[project.optional-dependencies]\n'
            'dev = ["pytest"]\n[build-system]\nrequires = []\n[tool.pytest.ini_options]\n[tool.ruff]\n',
            "shop/a.py": "",
            "shop/b.py": "",
            "tests/test_a.py": "",
            ".github/workflows/ci.yml": "",
        },
    )
    assert told.startswith("# shop\n\nSells things.\n")
    for line in (
        '- `pip install -e ".[dev]"`: install (pyproject.toml)',
        "- `python -m pytest`: tests (pyproject.toml)",
        "- `ruff check .`: lint (pyproject.toml)",
        "- `shop/`: 2 files, mostly Python",
        "- `.github/workflows/ci.yml` runs on the server.",
    ):
        assert line in told.splitlines(), told
    assert "mypy" not in told


def test_a_node_project_with_its_own_package_manager(tmp_path: Path) -> None:
    package = {"name": "web", "scripts": {"test": "vitest", "build": "vite build", "zap": "rm -rf x"}}
    told = make(tmp_path, {"package.json": json.dumps(package), "pnpm-lock.yaml": "", "src/a.ts": ""})
    assert "- `pnpm run test`: vitest (package.json)" in told
    assert "zap" not in told


def test_others_are_known_by_their_files(tmp_path: Path) -> None:
    told = make(
        tmp_path, {"Cargo.toml": "", "go.mod": "", "Makefile": "all: x\n\tcc\nCC := gcc\ncheck:\n\ttrue\n"}
    )
    for line in ("cargo test", "go test ./...", "make all", "make check"):
        assert f"- `{line}`" in told
    assert "make CC" not in told
    assert told.startswith(f"# {tmp_path.name}")


def test_the_readme_gives_a_sentence_where_nothing_else_does(tmp_path: Path) -> None:
    told = make(tmp_path, {"README.md": "# Title\n\n[![badge](x)](y)\n\nA thing\nthat works.\n\nMore."})
    assert "A thing that works." in told
    assert "badge" not in told


def test_an_empty_folder_gets_a_title_and_a_place_for_rules(tmp_path: Path) -> None:
    told = draft_agents(tmp_path, [])
    assert told.startswith(f"# {tmp_path.name}")
    assert "## Rules" in told
    assert "## Commands" not in told


def test_links_out_of_the_repository_and_broken_files_are_passed_over(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret.toml").write_text('[project]\nname = "stolen"\n')
    (root / "pyproject.toml").symlink_to(tmp_path / "secret.toml")
    (root / "package.json").write_text("[1]")
    os.mkfifo(root / "Makefile")
    told = draft_agents(root, ["Makefile", "package.json", "pyproject.toml"])
    assert told.startswith("# root")
    assert "stolen" not in told


@given(st.text(max_size=80), st.binary(max_size=80))
def test_whatever_files_hold_the_draft_is_plain_lines(name: str, body: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "package.json").write_text(json.dumps({"name": name, "scripts": {"test": name}}))
        (root / "Makefile").write_bytes(body)
        told = draft_agents(root, ["Makefile", "package.json", f"{name}/x.py"])
    assert all(char.isprintable() or char == "\n" for char in told)
    assert max(map(len, told.splitlines())) < 400
