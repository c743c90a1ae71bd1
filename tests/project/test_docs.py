"""What the documentation promises exists: the two commands, the pages, the recipes, the help texts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
JUST = Path(sys.executable).with_name("just")
FIRST = "sh .ci/setup && .venv/bin/skippy-agent certify --tier 1 --twin --event pull-request"
SECOND = "sh .ci/setup && .venv/bin/pytest -n 2"


def read(name: str) -> str:
    """Read a file of the project."""
    return (ROOT / name).read_text(encoding="utf-8")


def nav_pages(node: Any) -> Iterator[str]:
    """Yield the pages of a MkDocs navigation, in order."""
    if isinstance(node, str):
        yield node
    else:
        for child in node.values() if isinstance(node, dict) else node:
            yield from nav_pages(child)


def commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and all below it, with the words that call it."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from commands(child, (*path, name))


def root_command(module: str) -> click.Command:
    """Find the outermost click command of a command line module."""
    found = [value for value in vars(import_module(module)).values() if isinstance(value, click.Command)]
    children = {id(child) for group in found if isinstance(group, click.Group) for child in group.commands.values()}
    outermost = {id(value): value for value in found if id(value) not in children}
    assert len(outermost) == 1, f"{module} must hold exactly one outermost click command"
    return next(iter(outermost.values()))


def undocumented(command: click.Command, name: str) -> list[str]:
    """List the commands and options without help."""
    found = []
    for path, item in commands(command, (name,)):
        if not (item.help or "").strip():
            found.append(path)
        found += [
            f"{path} {option.opts[0]}"
            for option in item.params
            if isinstance(option, click.Option) and not option.hidden and not (option.help or "").strip()
        ]
    return found


def test_readme_gives_the_two_commands() -> None:
    """The README's first two shell blocks are the two commands, and each is one line."""
    blocks = re.findall(r"```sh\n(.*?)```", read("README.md"), flags=re.DOTALL)
    assert [block.strip() for block in blocks[:2]] == [FIRST, SECOND]


def test_ci_runs_what_the_readme_says() -> None:
    """`.ci/run` runs both halves of both commands; the docs' start page gives the first."""
    ci = read(".ci/run")
    for half in {*FIRST.split(" && "), *SECOND.split(" && ")}:
        assert re.search(rf"{re.escape(half)}$", ci, flags=re.MULTILINE), half
    assert FIRST in read("docs/index.md")


@pytest.mark.parametrize(
    "recipe",
    ["setup", "certify", "family-certify", "test", "test-all", "lint", "types", "docs", "requirements", "bench"],
)
def test_recipe_exists(recipe: str) -> None:
    """The justfile parses and has the recipe, with a comment that `just` shows."""
    done = subprocess.run(
        [JUST, "--dump", "--dump-format", "json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    recipes = yaml.safe_load(done.stdout)["recipes"]
    assert recipes[recipe]["doc"]


@pytest.mark.parametrize(
    ("given", "called"),
    [
        (["qwen3"], ["qwen3"]),
        (["qwen3", "/m/q w.gguf"], ["qwen3", "--model", "/m/q w.gguf"]),
        (["qwen3", "model.gguf", "--device", "CPU"], ["qwen3", "--model", "model.gguf", "--device", "CPU"]),
        (["--family", "qwen3", "--target-model", "/m/q.gguf"], ["qwen3", "--model", "/m/q.gguf"]),
        (["--target-model=/m/q.gguf", "--family=qwen3"], ["qwen3", "--model", "/m/q.gguf"]),
        (["--family", "qwen3", "--skip-build"], ["qwen3"]),
        (["qwen3", "--twin"], ["qwen3", "--twin"]),
        (["qwen3", "--skip-state"], ["qwen3", "--skip-state"]),
    ],
)
def test_family_certify_keeps_the_calling_convention(given: list[str], called: list[str], tmp_path: Path) -> None:
    """Positional and upstream's own arguments reach `skippy-agent certify`; the unknown is passed on, never dropped."""
    echo = tmp_path / "agent"
    echo.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    echo.chmod(0o755)
    command = [str(JUST), "--set", "agent", str(echo), "family-certify", *given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["certify", *called]


def test_navigation_and_pages_agree() -> None:
    """Every page of the navigation exists, and every page is in the navigation."""
    nav = list(nav_pages(yaml.safe_load(read("mkdocs.yml"))["nav"]))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    # one page a finding: they are reached from their index, and from the finding itself
    pages = {page for page in pages if not re.fullmatch(r"findings/[A-Z]{2}\d{3}\.md", page)}
    assert nav
    assert len(nav) == len(set(nav))
    assert set(nav) == pages


def test_decisions_are_listed() -> None:
    """The index of the decisions links every decision."""
    names = {path.name for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md")}
    assert names
    assert names == set(re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", read("docs/decisions/README.md")))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_relative_links_lead_somewhere(name: str) -> None:
    """A link of a page outside of docs/ leads to a file that exists."""
    targets = [target for target in re.findall(r"\]\(([^)#]+)", read(name)) if "://" not in target]
    assert [target for target in targets if not (ROOT / target).exists()] == []


@pytest.mark.slow
def test_site_builds_and_needs_no_other_host(tmp_path: Path) -> None:
    """The site builds without a warning and loads no script, style, font or image from another host."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env={"PATH": "", "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, check=True)
    pages = list(tmp_path.rglob("*.html"))
    assert pages
    loads = re.compile(
        r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//|<link\b[^>]*\bhref=[\"']?(?:https?:)?//"
    )
    assert loads.search('<script src="https://example.test/x.js">')
    assert loads.search('<link rel=stylesheet href="//example.test/x.css">')
    assert [page.name for page in pages if loads.search(page.read_text(encoding="utf-8"))] == []
    # The theme fetches its diagram library from another host when a page holds a diagram.
    assert [page.name for page in pages if 'class="mermaid"' in page.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize(("module", "name"), [("matrixgen.cli.group", "matrixgen"), ("agent.cli", "skippy-agent")])
def test_every_command_has_help(module: str, name: str) -> None:
    """Every command and every option says what it is for."""
    assert undocumented(root_command(module), name) == []


def test_missing_help_is_caught() -> None:
    """A command or an option without help is named with the words that call it."""
    group = click.Group("tool", help="A tool.")
    group.add_command(click.Command("bare", params=[click.Option(["--quiet"])]))
    assert undocumented(group, "tool") == ["tool bare", "tool bare --quiet"]


@pytest.mark.parametrize("script", [".ci/setup", ".ci/run"])
def test_scripts_parse(script: str) -> None:
    """The shell that a script names accepts it."""
    shell = "bash" if "bash" in read(script).splitlines()[0] else "sh"
    found = shutil.which(shell)
    assert found
    subprocess.run([found, "-n", script], cwd=ROOT, check=True)
