"""The product's servers: the whole model in one process, or split over several, behind the same HTTP surface."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.errors import AgentError, ServerDied, ServerNotReady, ServerSilent
from agent.prebuilt.adapter import Options
from agent.prebuilt.binaries import SERVER
from agent.prebuilt.openai import Answer, ask, served_models
from agent.prebuilt.ports import address, free_ports, is_taken, listens, says_taken
from agent.prebuilt.processes import Program
from agent.prebuilt.stage_config import LANES, new_model_id, write_stage_configs
from agent.prebuilt.target import Bench, Place, Target

_TRIES = 3
_POLL_SECONDS = 0.05
_ASK_SECONDS = 5.0
_CHUNK_TOKENS = 16  # so that the prompts cross the cuts in several parts


class _PortTaken(ServerNotReady):
    """Another process took a port; worth another try."""


@dataclass(frozen=True)
class Service:
    """Servers that are up: the address of the HTTP surface, the id of the model, and the programs, first stage first."""

    base: str
    model_id: str
    programs: tuple[Program, ...]
    seconds: float

    def ask(self, prompt: str, max_tokens: int) -> Answer:
        """Send one request.

        Raises:
            RequestRefused, ServerDied: it was not answered as it should be.
            ServerSilent: no answer in time, or the system killed a server.
        """
        try:
            return ask(self.base, self.model_id, prompt, max_tokens, self.seconds)
        except AgentError as error:
            time.sleep(_POLL_SECONDS)  # whoever broke the connection may still be ending
            for index, program in enumerate(self.programs):
                if (code := program.exit_code()) is not None:
                    raise _death(index, code, program) from error
            raise


@contextlib.contextmanager
def serve_whole(bench: Bench, target: Target, place: Place) -> Iterator[Service]:
    """Serve the whole model for the length of the block; no prefix cache, so that each answer is computed anew.

    Raises:
        ServerNotReady, ServerDied, ServerSilent: it does not come up.
    """

    def start(stack: contextlib.ExitStack) -> Service:
        stage_port, port = free_ports(2)
        model_id = new_model_id()
        (config,) = write_stage_configs(target, (), (stage_port,), model_id, place.kept, cache=False)
        words = bench.dialect.arguments(SERVER, "serve-openai", {"--config": config, "--bind-addr": address(port)})
        program = _launch(stack, bench, place, "whole", words)
        _wait_for_models([program], port, model_id, bench.startup_seconds)
        return Service(f"http://{address(port)}", model_id, (program,), bench.seconds)

    with _retrying(start) as service:
        yield service


@contextlib.contextmanager
def serve_split(bench: Bench, target: Target, cuts: Sequence[int], place: Place) -> Iterator[Service]:
    """Serve the model cut at `cuts` for the length of the block, with a prefix cache, prompts in several parts.

    Raises:
        ServerNotReady, ServerDied, ServerSilent: it does not come up.
    """

    def start(stack: contextlib.ExitStack) -> Service:
        port, *ports = free_ports(len(cuts) + 2)
        model_id = new_model_id()
        configs = write_stage_configs(target, cuts, ports, model_id, place.kept, cache=True)
        programs: list[Program] = []
        for index in reversed(range(len(ports))):  # each connects to the one behind it
            words = _binary_arguments(bench, target, configs[index], ports[index], port if index == 0 else None)
            programs.insert(0, _launch(stack, bench, place, f"stage-{index}", words))
            if index:
                _wait_for_stage(index, programs[0], ports[index], bench.startup_seconds)
        _wait_for_models(programs, port, model_id, bench.startup_seconds)
        return Service(f"http://{address(port)}", model_id, tuple(programs), bench.seconds)

    with _retrying(start) as service:
        yield service


def _binary_arguments(bench: Bench, target: Target, config: Path, port: int, openai: int | None) -> list[str]:
    needed: Options = {"--config": config, "--bind-addr": address(port)}
    optional: Options = {"--activation-width": target.width, "--activation-wire-dtype": "f32", "--max-inflight": LANES}
    if openai is not None:
        needed = {**needed, "--openai-bind-addr": address(openai)}
        optional = {
            **optional,
            "--openai-generation-concurrency": LANES,
            "--openai-prefill-chunk-policy": "fixed",
            "--openai-prefill-chunk-size": _CHUNK_TOKENS,
        }
    return bench.dialect.arguments(SERVER, "serve-binary", needed, optional)


def _launch(stack: contextlib.ExitStack, bench: Bench, place: Place, name: str, words: list[str]) -> Program:
    program = Program([bench.tools.need(SERVER), *words], place.kept / name, place.environment)
    return stack.enter_context(program)


@contextlib.contextmanager
def _retrying(start: Callable[[contextlib.ExitStack], Service]) -> Iterator[Service]:
    """Start servers, on other ports where one was taken, and stop them all at the end."""
    for last in (False,) * (_TRIES - 1) + (True,):
        with contextlib.ExitStack() as stack:
            try:
                service = start(stack)
            except _PortTaken:
                if last:
                    raise
                continue
            yield service
            return


def _wait_for_stage(index: int, program: Program, port: int, seconds: float) -> None:
    def ready() -> bool:
        return is_taken(port) and _is_ours(program, port)

    _wait(index, program, (port,), seconds, ready)


def _wait_for_models(programs: Sequence[Program], port: int, model_id: str, seconds: float) -> None:
    def ready() -> bool:
        return model_id in (served_models(f"http://{address(port)}", _ASK_SECONDS) or ()) and _is_ours(
            programs[0], port
        )

    _wait(0, programs[0], (port,), seconds, ready)


def _is_ours(program: Program, port: int) -> bool:
    """What answers on the port is the program, as far as the system tells."""
    return listens(program.processes(), port) is not False


def _wait(index: int, program: Program, ports: Sequence[int], seconds: float, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if (code := program.exit_code()) is not None:
            _require_ports(program, ports)
            if says_taken(program.words()):
                raise _PortTaken(f"stage {index} found its port in use: {program.words()}")
            raise _death_at_start(index, code, program)
        if time.monotonic() >= deadline:
            _require_ports(program, ports)
            raise ServerNotReady(
                f"stage {index} does not serve after {seconds:.0f} s; its last words: {program.words()}"
            )
        time.sleep(_POLL_SECONDS)


def _require_ports(program: Program, ports: Sequence[int]) -> None:
    for port in ports:
        if is_taken(port) and listens(program.processes(), port) is False:
            raise _PortTaken(f"another process took port {port} while a server started: {program.words()}")


def _death_at_start(index: int, code: int, program: Program) -> AgentError:
    if code >= 0:
        return ServerNotReady(f"stage {index} ended before it served (exit code {code}): {program.words()}")
    return _death(index, code, program)


def _death(index: int, code: int, program: Program) -> AgentError:
    if code == -signal.SIGKILL:
        return ServerSilent(f"stage {index} was killed by the system (SIGKILL): most often out of memory")
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return ServerDied(f"stage {index} died ({how}): {program.words()}")
