"""The pin commit over real bare git repositories: one file, on the tested commit, never forced, and never by accident."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import PinFileInvalid, PushRefused, RepositoryUnusable, VerdictRefused
from agent.gate.current import require_current
from agent.gate.git_repository import GitRepository
from agent.gate.moved import MovedPolicy, certified_among, changed_paths
from agent.gate.pin_commit import publish
from agent.gate.pin_file import Layout
from agent.gate.publication import Published, PublishOptions, PublishState
from agent.gate.refusal import Refusal, classify
from agent.gate.repository import Entry
from agent.gate.verdict_file import verdict_to_json, write_verdict
from agent.lanes.result import Status
from matrixgen.pin import Pin
from matrixgen.planfile import write_plan
from tests.agent.gate.kit import NOW, PLAN, complete, make_plan, verdict_of, with_lane
from tests.agent.gate.product import OLD_PIN, Product, certified
from tests.agent.gate.test_commands import call

MAIN = PublishOptions(branch="main")
PIN = "manifests/pin.json"


@pytest.fixture
def product(tmp_path: Path) -> Product:
    """The product's repository."""
    return Product(tmp_path / "server")


@pytest.fixture
def remote(product: Product) -> Iterator[GitRepository]:
    """The publisher's view of it."""
    with GitRepository(str(product.bare)) as repository:
        yield repository


class Racing(GitRepository):
    """Something happens right before each push."""

    def __init__(self, address: str, happens: Callable[[], object]) -> None:
        super().__init__(address)
        self._happens = happens

    def advance(self, branch: str, commit: str) -> None:
        """Let it happen, then push."""
        self._happens()
        super().advance(branch, commit)


def publish_once(remote: GitRepository, base: str, options: PublishOptions = MAIN, commit: str = "1" * 40) -> Published:
    """Publish a pin that was certified on `base`."""
    plan, verdict = certified(base, commit)
    return publish(remote, plan, verdict, base, options)


def test_the_pin_moves_by_one_file_on_the_tested_commit(product: Product, remote: GitRepository) -> None:
    """[G5] Parent is the tested commit, the pin file alone changes, the message holds the digests and a row a leg."""
    plan, verdict = certified(product.base)
    done = publish(remote, plan, verdict, product.base, MAIN)
    assert (done.state, done.commit) == (PublishState.PUBLISHED, product.tip())
    assert product.git("rev-parse", "main^") == product.base
    assert product.changed(product.base, "main") == [PIN]
    assert Pin.from_json(json.loads(product.read(PIN))) == plan.pin
    message = product.git("log", "-1", "--format=%B", "main")
    assert message.startswith("Pin llama.cpp to 111111111111 (b10516)")
    for word in (verdict_to_json(verdict)["digest"], plan.digest, product.base, OLD_PIN, "qwen3-dense@cuda"):
        assert word in message


def test_the_layout_of_upstream(product: Product, remote: GitRepository) -> None:
    """`third_party/llama.cpp/upstream.txt` holds the commit and a line feed, and nothing else changes."""
    done = publish_once(remote, product.base, replace(MAIN, layout=Layout.UPSTREAM))
    assert done.state is PublishState.PUBLISHED
    assert product.changed(product.base, "main") == ["third_party/llama.cpp/upstream.txt"]
    assert product.read("third_party/llama.cpp/upstream.txt") == "1" * 40


@pytest.mark.parametrize("change", ["edited", "added", "removed", "renamed"])
def test_the_patches_beside_the_pin_are_those_that_were_tested(
    product: Product, remote: GitRepository, change: str
) -> None:
    """[G4][G14] In upstream's layout a queue that is not the plan's is never published, even on the tested commit."""
    folder = "third_party/llama.cpp/patches"
    changes: dict[str, dict[str, str | None]] = {
        "edited": {f"{folder}/0006-state.patch": "another\n"},
        "added": {f"{folder}/0007-more.patch": "more\n"},
        "removed": {f"{folder}/0006-state.patch": None},
        "renamed": {f"{folder}/0006-state.patch": None, f"{folder}/0005-state.patch": "a patch\n"},
    }
    base = product.commit(changes[change])
    done = publish_once(remote, base, replace(MAIN, layout=Layout.UPSTREAM))
    assert (done.state, product.tip()) == (PublishState.TEST_AGAIN, base)
    assert "not the queue of the plan" in done.reason


def test_a_dry_run_writes_nothing(product: Product, remote: GitRepository) -> None:
    """Everything is decided, the message is there, no reference moves."""
    done = publish_once(remote, product.base, replace(MAIN, dry_run=True))
    assert (done.state, done.commit) == (PublishState.DRY_RUN, None)
    assert "Pin llama.cpp" in done.message
    assert (product.tip(), product.branches()) == (product.base, ["main"])


def test_publishing_twice_makes_one_commit(product: Product, remote: GitRepository) -> None:
    """A run that is repeated finds its pin there and makes no empty commit."""
    publish_once(remote, product.base)
    tip = product.tip()
    assert publish_once(remote, product.base).state is PublishState.ALREADY_PUBLISHED
    assert product.tip() == tip


MOVES = {
    "pin[G3]": PIN,
    "patch[G4]": "third_party/llama.cpp/patches/0006-state.patch",
    "new-patch": "third_party/llama.cpp/patches/0099-new.patch",
    "manifests": "manifests/families.json",
    "workflow": ".github/workflows/canary.yml",
    "action": "actions/certify/action.yml",
    "agent": "agent/lanes/chain.py",
    "matrixgen": "matrixgen/keys.py",
    "dependencies": "pyproject.toml",
    "cache-version": ".github/cache-version.txt",
}


@pytest.mark.parametrize("when", ["before", "between-check-and-push"])
@pytest.mark.parametrize("name", MOVES)
def test_certified_inputs_that_moved_are_tested_again(product: Product, name: str, when: str) -> None:
    """[G3][G4] A pin, patch, manifest, workflow or program that moved with main: refused, with the paths listed."""
    path = MOVES[name]
    text = Layout.JSON.text(make_plan(commit="9" * 40).pin) if path == PIN else "new\n"

    def move() -> None:
        if product.tip() == product.base:
            product.commit({path: text, "README.md": "also\n"})

    if when == "before":
        move()
    with Racing(str(product.bare), move) as remote:
        done = publish_once(remote, product.base)
    assert (done.state, done.changed, done.commit) == (PublishState.TEST_AGAIN, (path,), None)
    assert "test again" in done.reason
    assert product.git("log", "--format=%s", "main").splitlines() == ["a change", "a change"]


@pytest.mark.parametrize("change", ["removed", "renamed", "mode"])
def test_every_way_to_change_an_input_counts(product: Product, remote: GitRepository, change: str) -> None:
    """[G4] A patch that is removed, renamed or made executable is a change."""
    path = "third_party/llama.cpp/patches/0006-state.patch"
    if change == "mode":
        product.commit({path: "a patch\n"}, mode="100755")
    else:
        product.commit({path: None} | ({"elsewhere.patch": "a patch\n"} if change == "renamed" else {}))
    done = publish_once(remote, product.base)
    assert (done.state, done.changed) == (PublishState.TEST_AGAIN, (path,))


@pytest.mark.parametrize("when", ["before", "between-check-and-push"])
@pytest.mark.parametrize("policy", MovedPolicy)
def test_unrelated_paths_follow_the_policy(product: Product, policy: MovedPolicy, when: str) -> None:
    """[G3] Only unrelated paths moved: the commit is rebuilt on the new tip where the policy allows, else tested again."""

    def move() -> None:
        if product.tip() == product.base:
            product.commit({"README.md": "new\n", "manifests-old/x": "y\n"})

    if when == "before":
        move()
    with Racing(str(product.bare), move) as remote:
        done = publish_once(remote, product.base, replace(MAIN, policy=policy))
    if policy is MovedPolicy.RETEST_ALWAYS:
        assert done.state is PublishState.TEST_AGAIN
        assert product.git("rev-list", "--count", "main") == "2"
        return
    assert done.state is PublishState.PUBLISHED
    assert product.changed(product.base, "main^") == ["README.md", "manifests-old/x"]
    assert product.changed("main^", "main") == [PIN]
    assert product.git("rev-parse", "main^^") == product.base


def test_more_inputs_can_be_named(product: Product, remote: GitRepository) -> None:
    """A product's own build inputs count when they are named."""
    product.commit({"src/main.rs": "fn main() { }\n"})
    done = publish_once(remote, product.base, replace(MAIN, inputs=("src/",)))
    assert (done.state, done.changed) == (PublishState.TEST_AGAIN, ("src/main.rs",))


def test_a_rewritten_branch_is_tested_again(product: Product, remote: GitRepository) -> None:
    """A main that no longer holds the tested commit is never built upon."""
    product.commit({"README.md": "rewritten\n"} | {PIN: Layout.JSON.text(make_plan(commit=OLD_PIN).pin)}, parent=None)
    done = publish_once(remote, product.base)
    assert done.state is PublishState.TEST_AGAIN
    assert "rewritten" in done.reason


def test_of_two_canaries_one_publishes(product: Product) -> None:
    """Both certified on the same base; the second one loses the race and is tested again, with the pin named."""
    second: list[Published] = []

    def first_canary() -> None:
        if not second:
            with GitRepository(str(product.bare)) as other:
                second.append(publish_once(other, product.base, commit="2" * 40))

    with Racing(str(product.bare), first_canary) as remote:
        lost = publish_once(remote, product.base)
    assert second[0].state is PublishState.PUBLISHED
    assert (lost.state, lost.changed) == (PublishState.TEST_AGAIN, (PIN,))
    assert json.loads(product.read(PIN))["commit"] == "2" * 40


def test_two_canaries_of_one_pin_agree(product: Product) -> None:
    """The second one finds what it wanted to publish (within one second even the very same commit): one commit, no more."""
    done: list[Published] = []

    def first_canary() -> None:
        if not done:
            with GitRepository(str(product.bare)) as other:
                done.append(publish_once(other, product.base))

    with Racing(str(product.bare), first_canary) as remote:
        assert publish_once(remote, product.base).state in (PublishState.ALREADY_PUBLISHED, PublishState.PUBLISHED)
    assert product.git("rev-list", "--count", "main") == "2"


def test_a_branch_that_never_rests_is_left_alone(product: Product) -> None:
    """Tries are bounded; what was pushed by others stays."""
    with Racing(str(product.bare), lambda: product.commit({"README.md": product.tip()})) as remote:
        done = publish_once(remote, product.base)
    assert (done.state, done.refusal) == (PublishState.TEST_AGAIN, Refusal.MOVED)
    assert product.git("rev-list", "--count", "main") == "4"


GH013 = """echo 'error: GH013: Repository rule violations found for refs/heads/main.' >&2
echo '- Changes must be made through a pull request.' >&2
while read old new ref; do test "$ref" = refs/heads/main && exit 1; done; exit 0"""
GH006 = GH013.replace("GH013: Repository rule violations found", "GH006: Protected branch update failed")
SIGNED = GH013.replace("Changes must be made through a pull request", "Commits must have verified signatures")


@pytest.mark.parametrize(
    ("hook", "kind"),
    [(GH013, Refusal.PROTECTED), (GH006, Refusal.PROTECTED), (SIGNED, Refusal.UNSIGNED)],
    ids=["G6-ruleset", "G6-protected", "G7-signature"],
)
@pytest.mark.parametrize("pull_request", [True, False])
def test_a_rule_wants_a_pull_request(
    product: Product, remote: GitRepository, hook: str, kind: Refusal, pull_request: bool
) -> None:
    """[G6][G7] The refusal is named, tried once, a branch asks for the merge if allowed; main stays."""
    product.hook(f"echo x >> pushes\n{hook}")
    done = publish_once(remote, product.base, replace(MAIN, pull_request=pull_request))
    assert (done.state, done.refusal) == (PublishState.CERTIFIED_NOT_PUBLISHED, kind)
    assert product.tip() == product.base
    assert (product.bare / "pushes").read_text().count("x") == 1 + pull_request
    if pull_request:
        (branch,) = [name for name in product.branches() if name != "main"]
        assert done.pull_request == f"{product.bare}#{branch}"
        assert product.git("rev-parse", f"{branch}^") == product.base
        assert product.changed(product.base, branch) == [PIN]
    else:
        assert (done.pull_request, product.branches()) == (None, ["main"])


def test_another_refusal_is_not_tried_again(product: Product, remote: GitRepository) -> None:
    """[G6] A hook that says something unknown: named, once, no branch."""
    product.hook("echo x >> pushes; echo 'closed for today' >&2; exit 1")
    done = publish_once(remote, product.base)
    assert (done.state, done.pull_request) == (PublishState.CERTIFIED_NOT_PUBLISHED, None)
    assert "closed for today" in done.reason
    assert (product.bare / "pushes").read_text().count("x") == 1


def test_a_push_that_changed_nothing_is_no_success(product: Product) -> None:
    """[G6] A server that accepts and ignores the push."""

    class Silent(GitRepository):
        def advance(self, branch: str, commit: str) -> None:
            """Do nothing, successfully."""

    with Silent(str(product.bare)) as remote:
        done = publish_once(remote, product.base)
    assert done.state is PublishState.CERTIFIED_NOT_PUBLISHED
    assert "without" in done.reason


@pytest.mark.parametrize("kind", ["missing", "link", "broken", "executable"])
def test_a_pin_file_that_is_none_is_refused(product: Product, remote: GitRepository, kind: str) -> None:
    """A pin file that is missing, a link, not a pin, or of another mode is bad input, and nothing is written."""
    changes: dict[str, tuple[str | None, str]] = {
        "missing": (None, "100644"),
        "link": ("../README.md", "120000"),
        "broken": ("{}", "100644"),
        "executable": ("{}", "100755"),
    }
    text, mode = changes[kind]
    tip = product.commit({PIN: text}, mode=mode)
    with pytest.raises(PinFileInvalid):
        publish_once(remote, tip)
    assert product.tip() == tip


def test_a_repository_that_is_not_there(tmp_path: Path) -> None:
    """A missing repository or branch is a refusal, and not a traceback."""
    with GitRepository(str(tmp_path / "nothing.git")) as remote, pytest.raises(PushRefused, match="missing"):
        publish_once(remote, "b" * 40)


def test_a_relative_path_is_that_of_the_caller(product: Product, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository beside the caller is found, although git runs in a folder of its own."""
    monkeypatch.chdir(product.bare.parent)
    with GitRepository(product.bare.name) as remote:
        assert publish_once(remote, product.base).state is PublishState.PUBLISHED


def test_without_git_nothing_is_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without git is an infrastructure error."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RepositoryUnusable):
        GitRepository("x")


NOON = dt.datetime.fromisoformat(NOW)


def test_only_a_current_green_verdict_counts() -> None:
    """[G16][G5] Red, of another plan or pin, about no commit, old, or from the future: refused with the reason."""
    good = verdict_of(complete())
    assert require_current(good, PLAN, now=NOON, max_age_hours=24) == good.context.base_commit

    def refused(verdict: object, words: str, plan: object = PLAN, now: dt.datetime = NOON) -> None:
        with pytest.raises(VerdictRefused, match=words):
            require_current(verdict, plan, now=now, max_age_hours=24)  # type: ignore[arg-type]

    red = with_lane(complete()[0], 0, status=Status.FAIL, problems=("x",))
    refused(verdict_of([red, *complete()[1:]]), "red .leg_failed")
    refused(verdict_of(complete()[1:]), "infra .leg_missing")
    refused(verdict_of([]), "infra")
    refused(good, "about plan", make_plan(commit="2" * 40))
    refused(replace(good, pin={**good.pin, "commit": "2" * 40}), "about plan")
    refused(replace(good, legs=good.legs[1:]), "legs")
    refused(replace(good, context=replace(good.context, base_commit=None)), "which commit")
    refused(good, "216.0 hours old", now=NOON + dt.timedelta(days=9))
    refused(good, "future", now=NOON - dt.timedelta(hours=1))
    refused(replace(good, context=replace(good.context, certified_at="2026-13-01T00:00:00Z")), "time")


@pytest.mark.parametrize(
    ("text", "status", "kind"),
    [
        ("! [rejected] main -> main (non-fast-forward)", None, Refusal.MOVED),
        ("! [rejected] main -> main (fetch first)", None, Refusal.MOVED),
        ("! [rejected] main -> main (stale info)", None, Refusal.MOVED),
        ("Update is not a fast forward", 422, Refusal.MOVED),
        ("Reference update failed: cannot lock ref 'refs/heads/main'", 422, Refusal.MOVED),
        ("remote: error: GH013: Repository rule violations found for refs/heads/main.", None, Refusal.PROTECTED),
        ("Repository rule violations found\n\nChanges must be made through a pull request.", 409, Refusal.PROTECTED),
        ('Required status check "ci" is expected.', 422, Refusal.PROTECTED),
        ("Protected branch update failed for refs/heads/main", 403, Refusal.PROTECTED),
        ("GH013: Repository rule violations\n- Commits must have verified signatures.", None, Refusal.UNSIGNED),
        ("Resource not accessible by integration", 403, Refusal.FORBIDDEN),
        ("Permission to o/r.git denied to github-actions[bot].", None, Refusal.FORBIDDEN),
        (
            "refusing to allow a GitHub App to create or update workflow without `workflows` permission",
            None,
            Refusal.FORBIDDEN,
        ),
        ("Bad credentials", 401, Refusal.UNAUTHORISED),
        ("fatal: could not read Username for 'https://github.com'", None, Refusal.UNAUTHORISED),
        ("Not Found", 404, Refusal.MISSING),
        ("fatal: couldn't find remote ref refs/heads/main", None, Refusal.MISSING),
        ("API rate limit exceeded for installation", 403, Refusal.RATE_LIMITED),
        ("", 429, Refusal.RATE_LIMITED),
        ("We couldn't respond in time", 502, Refusal.UNAVAILABLE),
        ("fatal: unable to access: Could not resolve host: github.com", None, Refusal.UNAVAILABLE),
        ("", 403, Refusal.FORBIDDEN),
        ("", 409, Refusal.MOVED),
        ("", 422, Refusal.OTHER),
        ("something new", None, Refusal.OTHER),
    ],
)
def test_refusals_are_classified(text: str, status: int | None, kind: Refusal) -> None:
    """[G6][G15] What git and GitHub say has a kind; what is unknown is `other` and never `moved`."""
    assert classify(text, status) is kind


def test_listings_are_compared_on_both_sides() -> None:
    """Added, removed, changed content and changed mode; a folder covers what is below it and nothing beside it."""
    old = {"a": Entry("100644", "1"), "b": Entry("100644", "2"), "c": Entry("100644", "3")}
    new = {"a": Entry("100755", "1"), "b": Entry("100644", "9"), "d": Entry("100644", "4")}
    assert changed_paths(old, new) == ("a", "b", "c", "d")
    paths = ("agent/x.py", "agents/x.py", "agent", "pyproject.toml", "pyproject.toml.bak", "x/agent/y")
    assert certified_among(paths, ("agent/", "pyproject.toml")) == ("agent/x.py", "agent", "pyproject.toml")


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ([], 0, "published: main is at"),
        (["--dry-run"], 0, "dry_run: would set manifests/pin.json"),
        (["--layout", "upstream"], 0, "published"),
        (["--pin-file", "elsewhere.json"], 2, "elsewhere.json is missing"),
        (["--branch", "release"], 1, "missing"),
        (["--max-age", "0"], 1, "hours old"),
        (["--require-builds"], 1, "gate --builds"),
        (["--preflight"], 2, "leave out --git"),
        (["--require-check", "ci"], 2, "leave out --git"),
    ],
)
def test_the_command_publishes_over_git(
    product: Product, tmp_path: Path, change: list[str], code: int, words: str
) -> None:
    """`publish --git`: exit codes, one message, and a state file wherever a certified pin stays unpublished."""
    plan, verdict = certified(product.base)
    fresh = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    verdict = replace(verdict, context=replace(verdict.context, certified_at=fresh))
    write_plan(plan, tmp_path / "plan.json")
    write_verdict(verdict, tmp_path / "verdict.json")
    files: list[str | Path] = [
        "--plan",
        tmp_path / "plan.json",
        "--verdict",
        tmp_path / "verdict.json",
        "--state",
        tmp_path / "state.json",
    ]
    done = call("publish", "--git", product.bare, *files, *change)
    assert done.returncode == code, done.stderr
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if "--branch" in change or "--pin-file" in change:
        state = json.loads((tmp_path / "state.json").read_text(encoding="utf-8"))
        assert state["state"] == "certified_not_published"
    moved = product.tip() != product.base
    assert moved == (code == 0 and "--dry-run" not in change)


def test_publish_judges_again_where_receipts_are_given(product: Product, tmp_path: Path) -> None:
    """[G1] A green verdict that the receipts do not give is refused, whatever its digest says."""
    plan, verdict = certified(product.base)
    fresh = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    write_plan(plan, tmp_path / "plan.json")
    write_verdict(replace(verdict, context=replace(verdict.context, certified_at=fresh)), tmp_path / "verdict.json")
    (tmp_path / "receipts").mkdir()
    files: list[str | Path] = ["--plan", tmp_path / "plan.json", "--verdict", tmp_path / "verdict.json"]
    done = call("publish", "--git", product.bare, *files, "--receipts", tmp_path / "receipts")
    assert (done.returncode, product.tip()) == (1, product.base)
    assert "give another verdict" in done.stderr
