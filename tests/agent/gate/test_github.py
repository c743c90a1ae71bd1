"""The same decisions through the real PyGithub client against a server that speaks GitHub's protocol."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import InternalError, PushRefused, RepositoryUnusable, TokenRejected
from agent.gate.check_run import MAX_ANNOTATIONS, MAX_SUMMARY, check_run
from agent.gate.github_repository import GithubRepository
from agent.gate.pin_commit import publish
from agent.gate.producers import GITHUB_ACTIONS_APP, CheckFacts, Producer, check_problem
from agent.gate.publication import Published, PublishOptions, PublishState
from agent.gate.refusal import Refusal
from agent.gate.verdict import Verdict
from agent.gate.verdict_file import write_verdict
from agent.lanes.result import Status
from matrixgen.planfile import write_plan
from tests.agent.gate.github_server import REPOSITORY, Answer, Server
from tests.agent.gate.kit import complete, verdict_of, with_lane
from tests.agent.gate.product import FILES, Product, certified
from tests.agent.gate.test_commands import call

PIN = "manifests/pin.json"
MAIN = PublishOptions(branch="main")
MOVE = "^PATCH .*/git/refs/heads/main$"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server over a product's repository."""
    with Server(Product(tmp_path / "server")) as running:
        yield running


def remote_of(server: Server, token: str = "t0ken") -> GithubRepository:
    """The client."""
    return GithubRepository(REPOSITORY, token, api=server.url)


def publish_once(server: Server, options: PublishOptions = MAIN, commit: str = "1" * 40) -> Published:
    """Publish a pin that was certified on the base."""
    base = server.product.base
    plan, verdict = certified(base, commit)
    return publish(remote_of(server), plan, verdict, base, options)


def test_the_pin_moves_by_one_file_on_the_tested_commit(server: Server) -> None:
    """[G5][G7] Exactly the tested parent, the pin file alone, no author named (so that GitHub signs), never forced."""
    done = publish_once(server)
    product = server.product
    assert (done.state, done.commit) == (PublishState.PUBLISHED, product.tip())
    assert product.git("rev-parse", "main^") == product.base
    assert product.changed(product.base, "main") == [PIN]
    (made,) = [body for request, body in server.bodies if request.endswith("/git/commits") and body]
    assert "author" not in made
    assert "committer" not in made
    moves = [body for request, body in server.bodies if request.startswith("PATCH")]
    assert [body["force"] for body in moves] == [False]


def test_a_dry_run_only_reads(server: Server) -> None:
    """Not one request that writes."""
    assert publish_once(server, replace(MAIN, dry_run=True)).state is PublishState.DRY_RUN
    assert {request.split()[0] for request in server.asked} == {"GET"}


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ({"third_party/llama.cpp/patches/0006-state.patch": "edited\n"}, PublishState.TEST_AGAIN),
        ({"README.md": "edited\n"}, PublishState.PUBLISHED),
    ],
    ids=["G4-patch", "G3-unrelated"],
)
def test_main_moves_between_check_and_push(server: Server, files: dict[str, str], state: PublishState) -> None:
    """[G3][G4] GitHub refuses the stale fast-forward; everything is decided anew on the new tip."""
    server.before[MOVE] = lambda: server.product.commit(files)
    done = publish_once(server)
    product = server.product
    assert done.state is state
    if state is PublishState.TEST_AGAIN:
        assert done.changed == tuple(files)
        assert product.tip() == product.git("rev-list", "--max-count=1", "main")
        assert product.changed(product.base, "main") == list(files)
    else:
        assert product.changed("main^", "main") == [PIN]
        assert product.changed(product.base, "main^") == list(files)


def test_of_two_canaries_one_publishes(server: Server) -> None:
    """The other canary gets in between: this one is tested again, and the winner's pin stays."""
    server.before[MOVE] = lambda: publish_once(server, commit="2" * 40)
    lost = publish_once(server)
    assert (lost.state, lost.changed) == (PublishState.TEST_AGAIN, (PIN,))
    assert json.loads(server.product.read(PIN))["commit"] == "2" * 40


PROTECTED = {"message": "Repository rule violations found\n\nChanges must be made through a pull request.\n\n"}
REFUSED: dict[str, tuple[Answer, Refusal]] = {
    "G6-ruleset": ((422, PROTECTED), Refusal.PROTECTED),
    "G6-ruleset-409": ((409, PROTECTED), Refusal.PROTECTED),
    "G6-protected": ((403, {"message": "Protected branch update failed for refs/heads/main."}), Refusal.PROTECTED),
    "G7-unsigned": ((422, {"message": "Commits must have verified signatures."}), Refusal.UNSIGNED),
    "G15-forbidden": ((403, {"message": "Resource not accessible by integration"}), Refusal.FORBIDDEN),
    "unknown": ((422, {"message": "Validation Failed"}), Refusal.OTHER),
    "moved-but-not": ((422, {"message": "Update is not a fast forward"}), Refusal.MOVED),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_move_is_classified_and_not_repeated(server: Server, name: str) -> None:
    """[G6][G7][G15] One try; a pull request where a rule wants one; main and its pin stay; the state says so."""
    answer, kind = REFUSED[name]
    server.instead[MOVE] = answer
    done = publish_once(server)
    assert (done.state, done.refusal) == (PublishState.CERTIFIED_NOT_PUBLISHED, kind)
    assert sum(request.startswith("PATCH") for request in server.asked) == 1
    assert server.product.tip() == server.product.base
    if kind in (Refusal.PROTECTED, Refusal.UNSIGNED):
        assert done.pull_request == f"https://github.com/{REPOSITORY}/pull/7"
        (pull,) = server.pulls
        assert (pull["base"], pull["title"]) == ("main", "Pin llama.cpp to 111111111111 (b10516)")
        assert server.product.changed(server.product.base, pull["head"]) == [PIN]
    else:
        assert (done.pull_request, server.pulls) == (None, [])


def test_a_refused_pull_request_is_said(server: Server) -> None:
    """[G15] Neither push nor pull request: certified_not_published with both reasons."""
    server.instead[MOVE] = REFUSED["G6-ruleset"][0]
    words = "GitHub Actions is not permitted to create or approve pull requests."
    server.instead["^POST .*/pulls$"] = (403, {"message": words})
    done = publish_once(server)
    assert done.state is PublishState.CERTIFIED_NOT_PUBLISHED
    assert done.pull_request is None
    assert words in done.reason


@pytest.mark.parametrize(
    "answer",
    [
        (500, {"message": "oops"}),
        (502, "<html>bad gateway</html>"),
        (403, {"message": "API rate limit exceeded for installation ID 1."}),
        (429, {"message": "slow down"}),
        (200, "not json"),
        (200, {"object": {"sha": 5}}),
        (200, []),
    ],
    ids=range(7),
)
def test_a_server_in_trouble_is_infra(server: Server, answer: Answer) -> None:
    """Errors of the server and answers that make no sense are infrastructure, with one message and no retry."""
    server.instead["^GET .*/git/ref/heads/main$"] = answer
    with pytest.raises((RepositoryUnusable, PushRefused)) as caught:
        publish_once(server)
    assert caught.value.exit_code in (1, 4)
    assert sum("/git/ref/heads/main" in request for request in server.asked) == 1
    assert server.product.tip() == server.product.base


def test_a_tree_that_was_cut_off_is_not_compared(server: Server) -> None:
    """A listing that GitHub truncated could hide a certified input."""
    server.truncated = True
    with pytest.raises(RepositoryUnusable, match="cut"):
        publish_once(server)


def test_a_commit_that_holds_more_than_the_pin_is_never_pushed(server: Server) -> None:
    """What the server made of the request is looked at before any reference moves to it."""
    evil = server.product.commit({"src/main.rs": "evil\n", PIN: "{}\n"}, branch="elsewhere")
    made = server.commit(None, None, evil)[1]
    server.instead["^POST .*/git/commits$"] = (201, made)
    with pytest.raises(InternalError, match="alone"):
        publish_once(server)
    assert server.product.tip() == server.product.base


def test_a_move_that_changed_nothing_is_no_success(server: Server) -> None:
    """[G6] 200 and the branch stays where it was."""
    server.instead[MOVE] = server.ref(None, None, "main")
    done = publish_once(server)
    assert done.state is PublishState.CERTIFIED_NOT_PUBLISHED


def test_preflight_finds_out_before_the_hours(server: Server) -> None:
    """[G15] A token that may write is accepted, one that may not is refused with the permission that it needs."""
    assert any("can be written" in line for line in remote_of(server).preflight("main"))
    server.protected = True
    assert any("pull request" in line for line in remote_of(server).preflight("main"))
    server.instead["^POST .*/git/blobs$"] = (403, {"message": "Resource not accessible by integration"})
    with pytest.raises(TokenRejected, match="contents: write"):
        remote_of(server).preflight("main")
    with pytest.raises(PushRefused, match="unauthorised"):
        remote_of(server, "wrong")


PRODUCER = Producer(app_id=GITHUB_ACTIONS_APP, workflow=".github/workflows/canary.yml", run_id="700", head_sha="b" * 40)
RIGHT = CheckFacts(
    id=10,
    name="gate",
    app_id=GITHUB_ACTIONS_APP,
    head_sha="b" * 40,
    run_id="700",
    workflow=".github/workflows/canary.yml",
    conclusion="success",
)


def test_the_right_producer_counts() -> None:
    """One check of the right app, workflow, run and commit, in success; checks of other names do not matter."""
    assert check_problem([RIGHT, replace(RIGHT, id=11, name="other", conclusion="failure")], "gate", PRODUCER) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"app_id": None},
        {"app_id": -1},
        {"app_id": 1},
        {"run_id": None},
        {"run_id": "699"},
        {"workflow": None},
        {"workflow": ".github/workflows/fake.yml"},
        {"head_sha": None},
        {"head_sha": "c" * 40},
        {"conclusion": None},
        {"conclusion": "skipped"},
        {"conclusion": "neutral"},
        {"conclusion": "failure"},
    ],
    ids=lambda changes: "G9-" + "-".join(map(str, *changes.items())),
)
@pytest.mark.parametrize("beside_the_right_one", [True, False])
def test_a_check_of_the_right_name_alone_does_not_count(changes: dict[str, Any], beside_the_right_one: bool) -> None:
    """[G2][G8][G9] Wrong or missing app, run, workflow or commit blocks, also as a second producer of the name."""
    fake = replace(RIGHT, id=11, **changes)
    assert check_problem([RIGHT, fake] if beside_the_right_one else [fake], "gate", PRODUCER)


def test_no_check_is_not_a_green_one() -> None:
    """[G1][G10] No check at all, or only checks of other names."""
    assert check_problem([], "gate", PRODUCER)
    assert check_problem([replace(RIGHT, name="lint")], "gate", PRODUCER)


def raw_check(check_id: int, base: str, app: int | None, conclusion: str) -> dict[str, Any]:
    """A check run as the API gives it."""
    return {
        "id": check_id,
        "name": "gate",
        "head_sha": base,
        "status": "completed",
        "conclusion": conclusion,
        "app": {"id": app} if app else None,
        "details_url": f"https://github.com/{REPOSITORY}/actions/runs/700/job/{check_id}",
        "url": f"https://api/check-runs/{check_id}",
    }


def test_checks_are_traced_to_their_workflow(server: Server) -> None:
    """[G8] The API's checks, hidden ones too, become facts: app, commit, run, and the workflow file of the run."""
    base = server.product.base
    server.checks = [raw_check(10, base, GITHUB_ACTIONS_APP, "failure"), raw_check(11, base, None, "success")]
    server.runs["700"] = {"id": 700, "url": "x", "path": ".github/workflows/canary.yml@refs/heads/main"}
    real, fake = remote_of(server).checks(base)
    assert (real.workflow, real.run_id, real.app_id, real.conclusion) == (
        ".github/workflows/canary.yml",
        "700",
        GITHUB_ACTIONS_APP,
        "failure",
    )
    assert fake.app_id is None
    server.runs.clear()
    assert remote_of(server).checks(base)[0].workflow is None


def test_annotations_stand_at_the_rows() -> None:
    """Red is a failure and infra a warning, at the line of the family's row; green is success without annotations."""
    red = with_lane(complete()[0], 0, status=Status.FAIL, problems=("cut 3",))
    verdict = verdict_of([red, *complete()[2:]])
    conclusion, output = check_run(verdict, "s", FILES["manifests/families.json"], "manifests/families.json")
    assert conclusion == "failure"
    assert [(a["title"], a["start_line"], a["annotation_level"]) for a in output["annotations"]] == [
        ("mamba@cpu", 4, "failure"),
        ("mamba@cuda", 4, "warning"),
    ]
    assert check_run(verdict_of(complete()), "s", "{", "x")[0] == "success"
    assert check_run(verdict_of([]), "s", "", "x")[0] == "failure"


def test_a_check_run_stays_within_the_limits() -> None:
    """At most 50 annotations and 65535 bytes of summary."""
    verdict = verdict_of([])
    legs = tuple(replace(verdict.legs[0], leg=f"f{number}@cpu") for number in range(200))
    _, output = check_run(replace(verdict, legs=legs), "é" * 50_000, "", "x")
    assert len(output["annotations"]) == MAX_ANNOTATIONS
    assert len(output["summary"].encode()) <= MAX_SUMMARY
    assert "verdict.json" in output["summary"]


def command(
    server: Server, tmp_path: Path, verdict: Verdict, *more: str, token: str | None = "t0ken"
) -> subprocess.CompletedProcess[str]:
    """`skippy-agent publish` as a workflow step."""
    plan, _ = certified(server.product.base)
    fresh = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    write_plan(plan, tmp_path / "plan.json")
    write_verdict(replace(verdict, context=replace(verdict.context, certified_at=fresh)), tmp_path / "verdict.json")
    files = ("--plan", str(tmp_path / "plan.json"), "--verdict", str(tmp_path / "verdict.json"))
    environment = {"GITHUB_REPOSITORY": REPOSITORY, "GITHUB_API_URL": server.url}
    return call(
        "publish",
        *files,
        "--state",
        str(tmp_path / "state.json"),
        *more,
        environment=environment | ({"GITHUB_TOKEN": token} if token else {}),
    )


def test_the_command_publishes_and_reports(server: Server, tmp_path: Path) -> None:
    """A green verdict: check run, pin commit, state file, exit 0; a second call finds it done."""
    _, verdict = certified(server.product.base)
    done = command(server, tmp_path, verdict, "--check-run", "llama.cpp pin")
    assert (done.returncode, done.stderr) == (0, "")
    assert server.product.changed(server.product.base, "main") == [PIN]
    (check,) = server.checks
    assert (check["name"], check["conclusion"], check["head_sha"]) == ("llama.cpp pin", "success", server.product.base)
    assert json.loads((tmp_path / "state.json").read_text(encoding="utf-8"))["state"] == "published"
    assert command(server, tmp_path, verdict).stdout.startswith("already_published")


def test_a_red_verdict_makes_a_red_check_and_no_commit(server: Server, tmp_path: Path) -> None:
    """[F9] Publishing is unreachable without a green verdict; the check run says why."""
    plan, _ = certified(server.product.base)
    verdict = verdict_of([], plan, base_commit=server.product.base)
    done = command(server, tmp_path, verdict, "--check-run", "llama.cpp pin")
    assert done.returncode == 1
    assert "only a green one" in done.stderr
    assert server.checks[0]["conclusion"] == "failure"
    assert server.product.tip() == server.product.base


@pytest.mark.parametrize(("second", "code"), [(False, 0), (True, 1)], ids=["one-producer", "G8-two-producers"])
def test_required_checks_have_one_producer(server: Server, tmp_path: Path, second: bool, code: int) -> None:
    """[G8] A newer success of the same name by another app does not hide, nor replace, the run's own check."""
    base = server.product.base
    server.runs["700"] = {"id": 700, "url": "x", "path": ".github/workflows/canary.yml@refs/heads/main"}
    server.checks = [raw_check(10, base, GITHUB_ACTIONS_APP, "success")]
    if second:
        server.checks.append(raw_check(11, base, 1, "success"))
    _, verdict = certified(base)
    done = command(server, tmp_path, verdict, "--require-check", "gate", "--workflow", ".github/workflows/canary.yml")
    assert done.returncode == code, done.stderr
    assert (server.product.tip() != base) == (code == 0)


def test_a_certified_pin_that_stays_is_written_down(server: Server, tmp_path: Path) -> None:
    """[G6] The state file says certified_not_published; with a pull request the step succeeds, without it fails."""
    _, verdict = certified(server.product.base)
    server.instead[MOVE] = REFUSED["G6-ruleset"][0]
    for more, code in (((), 0), (("--no-pull-request",), 1)):
        done = command(server, tmp_path, verdict, *more)
        assert done.returncode == code
        state = json.loads((tmp_path / "state.json").read_text(encoding="utf-8"))
        assert (state["state"], state["refusal"]) == ("certified_not_published", "protected")
        assert bool(state["pull_request"]) == (code == 0)
        server.product.git("update-ref", "-d", f"refs/heads/llama-pin/{state['commit'][:12]}")


@pytest.mark.parametrize(
    ("token", "more", "code", "words"),
    [
        (None, (), 2, "GITHUB_TOKEN"),
        ("wrong", (), 1, "unauthorised"),
        ("t0ken", ("--preflight",), 0, "can be written"),
        ("t0ken", ("--require-check", "x"), 2, "--workflow"),
        ("t0ken", ("--api", "http://127.0.0.1:1"), 4, "cannot be used"),
    ],
)
def test_the_command_says_what_is_missing(
    server: Server, tmp_path: Path, token: str | None, more: tuple[str, ...], code: int, words: str
) -> None:
    """[G15] No token, a wrong one, no server: one message, its exit code, nothing written."""
    _, verdict = certified(server.product.base)
    done = command(server, tmp_path, verdict, *more, token=token)
    assert done.returncode == code, done.stderr
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "t0ken" not in done.stdout + done.stderr
    assert server.product.tip() == server.product.base
