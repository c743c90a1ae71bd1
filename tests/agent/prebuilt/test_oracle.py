"""Whole answers of a split model against those of the whole one: real servers, real sockets, a toy model with seeded errors."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agent.errors import ServerNotReady, ServerSilent
from agent.lanes.result import Findings
from agent.prebuilt import oracle, serving
from agent.prebuilt.openai import Answer
from agent.prebuilt.oracle import PROMPTS, compare_answers, require_enough
from agent.prebuilt.ports import free_ports
from agent.prebuilt.processes import Program
from agent.prebuilt.stage_config import write_stage_configs
from agent.prebuilt.target import TOKENS
from tests.agent.conftest import changed
from tests.agent.prebuilt.conftest import Lab

Fault = Callable[[str], None]


def answer(*pieces: str, **fields: object) -> Answer:
    """An answer of these pieces."""
    known: dict[str, object] = {
        "finish": "length", "prompt_tokens": 5, "completion_tokens": len(pieces), "cached_tokens": 0
    }  # fmt: skip
    return changed(Answer(pieces=pieces, **known), **fields)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def two_stages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stages only, except where a test asks for all."""
    if "three" not in request.node.name:
        monkeypatch.setattr(oracle, "third_cuts", lambda _contract: None)


def test_equal_answers() -> None:
    """Every piece is one comparison."""
    findings = Findings("x")
    compare_answers(answer("a", "b"), answer("a", "b"), "here", findings)
    assert (findings.comparisons, findings.problems) == (2, [])


@pytest.mark.parametrize(
    ("split", "words"),
    [
        (answer("a", "c"), "here: token 2 is 'c', the whole model says 'b'"),
        (answer("a"), "here: token 2 is missing, the whole model says 'b'"),
        (answer("a", "b", "c"), "here: token 3 is 'c', the whole model says missing"),
        (answer(), "here: token 1 is missing"),
        (answer("a", "b", finish="stop"), "the reason of the end: stop, for the whole model length"),
        (answer("a", "b", finish=None), "the reason of the end: None"),
        (answer("a", "b", completion_tokens=3), "tokens in the answer: 3, for the whole model 2"),
        (answer("a", "b", prompt_tokens=6), "tokens in the prompt: 6, for the whole model 5"),
    ],
)
def test_answers_that_differ(split: Answer, words: str) -> None:
    """The first token that differs is named with both values; the counts and the reason of the end are compared as well."""
    findings = Findings("x")
    compare_answers(answer("a", "b"), split, "here", findings)
    assert any(words in problem for problem in findings.problems), findings.problems


def test_pieces_that_are_cut_otherwise() -> None:
    """The same text in other pieces is no difference of tokens, and is told."""
    findings = Findings("x")
    compare_answers(answer("a", "b"), answer("ab", completion_tokens=2), "here", findings)
    assert (findings.problems, findings.notes) == ([], ["here: the same text in 1 instead of 2 pieces"])


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([], "the longest answer of the whole model has 0 tokens, 2 are owed"),
        ([answer("a", "b"), answer()], "answers nothing to 'Name all the months"),
        ([answer("a", "b", completion_tokens=None)], "answers nothing"),
        ([answer("a", finish="stop")], "the longest answer of the whole model has 1 tokens"),
        ([answer("a", "b", prompt_tokens=511)], "do not fit into a context of 512"),
    ],
)
def test_answers_that_are_too_short_prove_nothing(answers: list[Answer], words: str) -> None:
    """Two empty answers are equal: a least number of tokens is owed."""
    findings = Findings("x")
    require_enough(answers, 2, findings)
    assert any(words in problem for problem in findings.problems), findings.problems


def test_a_sound_split_in_two_and_three_stages_passes(lab: Lab) -> None:
    """Cold, from the cache, and among others: every token of every prompt is equal."""
    result = lab.run("tokens")
    assert (str(result.status), result.problems) == ("pass", ())
    assert result.comparisons == 2 * TOKENS * (3 * len(PROMPTS) + 1)
    assert all(cached > 0 for cached in result.measurements["cached_tokens"].values())
    logs = sorted(path.name for path in (lab.folder / "prebuilt-tokens" / "split-3-6").glob("*.err"))
    assert logs == ["stage-0.err", "stage-1.err", "stage-2.err"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mismatch", "cut at 4, prompt 1 first time: token 1 is"),
        ("late-error", "cut at 4, prompt 1 first time: token 25 is"),
        ("cache-loses-state", "again: token 1 is"),
        ("crosstalk", "among others: token"),
        ("other-end", "the reason of the end: stop, for the whole model length"),
        ("empty-answer", "the whole model answers nothing"),
        ("unsteady", "answers the same request in two ways"),
        ("refuse", "it answers 500"),
        ("break-answer", "ends without [DONE]"),
        ("stage-crash", "stage 1 died (SIGSEGV): GGML_ASSERT"),
        ("http-crash", "stage 0 died (SIGABRT)"),
    ],
)
def test_an_error_of_the_product_is_a_fail(name: str, words: str, lab: Lab, fault: Fault) -> None:
    """Each seeded error is found at the place where it was seeded."""
    fault(name)
    result = lab.run("tokens")
    assert result.status == "fail"
    assert any(words in problem for problem in result.problems), result.problems


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stage-exit", "stage 1 ended before it served (exit code 1): Error: no KV cache layers selected"),
        ("stage-oom", "stage 1 was killed by the system (SIGKILL)"),
    ],
)
def test_what_the_machine_may_be_to_blame_for_is_infra(name: str, words: str, lab: Lab, fault: Fault) -> None:
    """A server that does not come up, or that the system killed."""
    fault(name)
    result = lab.run("tokens")
    assert result.status == "infra"
    assert any(words in problem for problem in result.problems), result.problems


@pytest.mark.slow
@pytest.mark.parametrize(("name", "words"), [("hang-answer", "gave no answer"), ("drip", "did not end")])
def test_an_answer_that_does_not_come_is_infra(name: str, words: str, lab: Lab, fault: Fault) -> None:
    """A split model that is silent, or never done."""
    fault(name)
    lab.seconds = 6  # the stand-in takes longer over one answer, and the whole model far less
    result = lab.run("tokens")
    assert result.status == "infra"
    assert f"{words} within 6 s" in result.problems[0]


@pytest.mark.parametrize(("name", "stage"), [("stage-silent", 1), ("other-model", 0)])
def test_a_stage_that_does_not_serve(
    name: str, stage: int, lab: Lab, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lives and answers nothing, or for another model: after its time it is given up."""
    real = serving._wait

    def wait_shortly(
        index: int, program: Program, ports: Sequence[int], seconds: float, ready: Callable[[], bool]
    ) -> None:
        real(index, program, ports, 1 if index == stage else seconds, ready)

    fault(name)
    monkeypatch.setattr(serving, "_wait", wait_shortly)
    bench = lab.bench()
    with (
        bench.place("cpu", "x") as place,
        pytest.raises(ServerNotReady, match=f"stage {stage} does not serve after 1 s"),
        serving.serve_split(bench, lab.target(), (4,), place),
    ):
        raise AssertionError("it must not come up")


def test_a_port_that_was_taken_away_is_given_up(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign server on the port of a stage is not taken for the stage; other ports are tried."""
    with socket.create_server(("127.0.0.1", 0)) as thief:
        port = thief.getsockname()[1]
        given = [free_ports(2), (*free_ports(2), port)]
        monkeypatch.setattr(serving, "free_ports", lambda count: given.pop(0) if given else free_ports(count))
        assert str(lab.run("tokens").status) == "pass"
        monkeypatch.setattr(serving, "free_ports", lambda count: (*free_ports(count - 1), port))
        monkeypatch.setattr(serving, "_TRIES", 2)
        result = lab.run("tokens")
    assert result.status == "infra"
    assert f"another process took port {port}" in result.problems[0]


def test_a_port_that_nobody_is_found_on(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was in use when the server wanted it, and nobody listens: the words of the system are enough for another try."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        given = [free_ports(2), (*free_ports(2), port)]
        monkeypatch.setattr(serving, "free_ports", lambda count: given.pop(0) if given else free_ports(count))
        assert str(lab.run("tokens").status) == "pass"
        monkeypatch.setattr(serving, "free_ports", lambda count: (*free_ports(count - 1), port))
        result = lab.run("tokens")
    assert result.status == "infra"
    assert "found its port in use" in result.problems[0]


def test_a_stale_server_with_the_right_answer_is_not_ours(lab: Lab, tmp_path: Path) -> None:
    """It lists the very model id, and still is another process: the system says whose socket it is."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"data":[{"id":"skippy-ci/model:stale"}]}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Silent."""

    bench, target = lab.bench(), lab.target()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        port = server.server_address[1]
        with (
            bench.place("cpu", "x") as place,
            Program(["sleep", "60"], place.kept / "sleep", place.environment) as program,
            pytest.raises(ServerNotReady, match=f"another process took port {port}"),
        ):
            serving._wait_for_models([program], port, "skippy-ci/model:stale", 0.5)
        server.shutdown()
    assert target.layers == 8


def test_stage_configurations(lab: Lab, tmp_path: Path) -> None:
    """Each stage has its layers, its neighbours and its port; what is not split has neither cache nor neighbours."""
    target = lab.target()
    paths = write_stage_configs(target, (3, 6), (101, 102, 103), "id", tmp_path, cache=True)
    first, second, third = (json.loads(path.read_text(encoding="utf-8")) for path in paths)
    assert [(c["layer_start"], c["layer_end"]) for c in (first, second, third)] == [(0, 3), (3, 6), (6, 8)]
    assert (first["upstream"], third["downstream"]) == (None, None)
    assert second["upstream"] == {"stage_id": "stage-0", "stage_index": 0, "endpoint": "tcp://127.0.0.1:101"}
    assert second["downstream"]["endpoint"] == "tcp://127.0.0.1:103"
    (whole,) = write_stage_configs(target, (), (101,), "id", tmp_path, cache=False)
    config = json.loads(whole.read_text(encoding="utf-8"))
    assert (config["layer_end"], config["kv_cache"]["mode"], config["downstream"]) == (8, "disabled", None)
    assert first["kv_cache"]["payload"] == "auto"


def test_a_killed_server_is_told_while_it_is_asked(lab: Lab, fault: Fault) -> None:
    """The broken connection alone would not say who died of what."""
    bench, target = lab.bench(), lab.target()
    with bench.place("cpu", "x") as place, serving.serve_whole(bench, target, place) as service:
        assert service.ask("hello there", 2).completion_tokens == 2
        os.kill(service.programs[0].pid, signal.SIGKILL)
        with pytest.raises(ServerSilent, match="stage 0 was killed by the system"):
            service.ask("hello again", 2)
