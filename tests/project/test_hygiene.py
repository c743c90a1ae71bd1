"""What is committed holds no registry, no path of a machine, and no requirement without a hash."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / ".ci" / "requirements"

# Each name is put together here, so that this file does not hold what it looks for.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("deb", "debian", "org"),
        ("debian", "org"),
        ("archive", "ubuntu", "com"),
        ("anaconda", "org"),
        ("golang", "org"),
        ("crates", "io"),
        ("rubygems", "org"),
    )
]
MACHINE_ROOTS = ["/work" + "/", "/tmp/" + "w/", "/root" + "/", "/opt/" + "wheels", "/opt/" + "pypi"]

FORBIDDEN = {
    "a registry host": re.compile("|".join(rf"\b{re.escape(host)}\b" for host in REGISTRY_HOSTS), re.IGNORECASE),
    # The character before keeps `runner/work/...` and `~/work/...`, which are not of this machine, apart.
    "a machine path": re.compile(
        rf"(?<![\w.~-])(?:{'|'.join(map(re.escape, MACHINE_ROOTS))})|/home/(?!runner\b)\w+/|/Users/\w+/"
    ),
    "an index line": re.compile(
        r"^\s*(?:-i|--index-url|--extra-index-url|--find-links|-f|--trusted-host)[\s=]", re.MULTILINE
    ),
    "a resolved address": re.compile(r"[\"']?\bresolved[\"']?\s*[:=]\s*[\"']?(?:https?|file):"),
}
LOCK_FILES = {"uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "package-lock.json", "yarn.lock", "pnpm-lock.yaml"}


def faults(name: str, text: str) -> list[str]:
    """Say what one file holds that it must not, with the line."""
    found = (
        [f"{name}: a lock file, requirements are pinned in .ci/requirements"] if Path(name).name in LOCK_FILES else []
    )
    for what, pattern in FORBIDDEN.items():
        found += [f"{name}:{text.count(chr(10), 0, hit.start()) + 1}: {what}" for hit in pattern.finditer(text)]
    return found


def committed() -> list[Path]:
    """List the files that are committed or would be."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted({ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()})


def unhashed(text: str) -> list[str]:
    """List the requirements of a file that are not pinned to one version with at least one sha256."""
    entries = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n?", "", text, flags=re.MULTILINE)).splitlines()
    pinned = re.compile(r"[a-z0-9][a-z0-9.-]*==[\w.]+(?: ; [^#\\]+?)?(?:\s+--hash=sha256:[0-9a-f]{64})+\s*")
    return [entry.split(" ")[0] for entry in entries if entry.strip() and not pinned.fullmatch(entry)]


def pins(name: str) -> set[str]:
    """Give `name==version ; marker`, without the marker, for every line of a requirements file."""
    text = (REQUIREMENTS / name).read_text(encoding="utf-8")
    return set(re.findall(r"^[a-z0-9][a-z0-9.-]*==[\w.]+", text, flags=re.MULTILINE))


def test_files_hold_nothing_of_a_machine_or_a_registry() -> None:
    """No file that is or would be committed names a registry host, an index, or a path of the machine behind it."""
    files = committed()
    assert {ROOT / "pyproject.toml", Path(__file__).resolve(), REQUIREMENTS / "dev.txt"} <= set(files)
    found = [
        fault
        for path in files
        for fault in faults(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == []


@pytest.mark.parametrize("host", REGISTRY_HOSTS)
def test_a_registry_host_is_caught(host: str) -> None:
    """Every known registry host is found, also with a prefix and a path."""
    assert faults("a.md", f"see\nhttps://files.{host}/packages") == ["a.md:2: a registry host"]


@pytest.mark.parametrize("path", [*MACHINE_ROOTS, "/home/" + "ann/", "/Users/" + "ann/"])
def test_a_machine_path_is_caught(path: str) -> None:
    """Every path of a machine is found."""
    assert "a.py:1: a machine path" in faults("a.py", f'ROOT = "{path}x"')


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("r.txt", "--index" + "-url https://example.test/simple", "an index line"),
        ("r.txt", "click\n  --extra-index" + "-url=file:///x", "an index line"),
        ("r.txt", "--find" + "-links x", "an index line"),
        ("r.txt", "-i" + " https://example.test", "an index line"),
        ("p.json", '"resol' + 'ved": "https://example.test/x.tgz"', "a resolved address"),
        *((name, "", "a lock file") for name in sorted(LOCK_FILES)),
    ],
)
def test_an_index_or_a_lock_is_caught(name: str, text: str, fault: str) -> None:
    """Index options, resolved addresses and foreign lock files are found."""
    assert any(fault in found for found in faults(name, text))


@pytest.mark.parametrize("text", ["runner/work/repo", "/home/runner/_work/x", "resolved: two of three", "~/work/x"])
def test_harmless_words_are_let_through(text: str) -> None:
    """Paths of hosted runners and plain words are no fault."""
    assert faults("a.md", text) == []


@pytest.mark.parametrize("name", ["base.txt", "agent.txt", "engine.txt", "dev.txt"])
def test_requirements_are_pinned_with_hashes(name: str) -> None:
    """Every line of every requirements file has one exact version and its hashes."""
    assert pins(name)
    assert unhashed((REQUIREMENTS / name).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "click==8.1\n",
        "click>=8 \\\n    --hash=sha256:" + "0" * 64,
        "click==8.1 \\\n    --hash=sha256:abc",
        "click==8.1 \\\n    --hash=md5:" + "0" * 32,
        "-r other.txt\n",
        "click @ https://example.test/click.whl --hash=sha256:" + "0" * 64,
    ],
)
def test_a_requirement_without_pin_or_hash_is_caught(text: str) -> None:
    """A range, a missing, short or weak hash, an include and an address are all found."""
    assert len(unhashed(text)) == 1


@pytest.mark.parametrize("name", ["base.txt", "agent.txt", "engine.txt"])
def test_the_sets_agree(name: str) -> None:
    """The smaller sets hold the versions of the whole one; base is part of each."""
    assert pins(name) <= pins("dev.txt")
    assert pins("base.txt") <= pins(name)


def test_requirements_follow_pyproject() -> None:
    """Every dependency that pyproject.toml names is pinned in the set of its layer."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {"base.txt": project["dependencies"]} | {
        f"{extra}.txt": [*project["dependencies"], *requirements]
        for extra, requirements in project["optional-dependencies"].items()
    }
    assert wanted.keys() == {path.name for path in REQUIREMENTS.iterdir()}
    for name, requirements in wanted.items():
        names = {re.split(r"[<>=!~;\[ ]", requirement)[0].lower().replace("_", "-") for requirement in requirements}
        assert names <= {pin.partition("==")[0] for pin in pins(name)}, name
