"""The command line: exit codes, messages, and standard output that is what it says."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.cli import _EXIT_CODES, cli
from agent.engine.devices import list_devices
from agent.receipt.receipt import read_receipt
from matrixgen.leg import Plan
from matrixgen.plan import write_plan
from tests.agent.bad_files import OTHER_ROLES, UNREADABLE
from tests.agent.conftest import ROOT, Cli, changed

Plans = Callable[..., Plan]


@pytest.fixture
def plan_file(plans: Plans, tmp_path: Path) -> Callable[..., Path]:
    """Write a plan of families with a few lanes."""

    def write(*families: str, lanes: tuple[str, ...] = ("inspect",), **how: Any) -> Path:
        plan = plans(*families, **how)
        legs = tuple(changed(leg, lanes=tuple(lane for lane in leg.lanes if lane.name in lanes)) for leg in plan.legs)
        path = tmp_path / "plan.json"
        write_plan(changed(plan, legs=legs), path)
        return path

    return write


def absent_backend() -> str:
    """A backend that this machine does not have."""
    present = {device.backend for device in list_devices()}
    return next(name for name in ("cuda", "metal") if name not in present)


def test_exit_code_0_when_every_owed_lane_passed(plan_file: Callable[..., Path], process: Cli, tmp_path: Path) -> None:
    """In a process of its own: a table on standard output, progress on standard error, a receipt on the disk."""
    done = process("certify", "--plan", plan_file("qwen3-dense"), "--receipts", tmp_path / "receipts")
    assert done.code == 0, done.err
    assert "1 pass" in done.out
    assert str(tmp_path / "receipts") in done.out.replace("\n", "")
    assert "pass   qwen3-dense@cpu: 1 of 1 lanes" in done.err
    assert read_receipt(tmp_path / "receipts" / "qwen3-dense@cpu" / "receipt.json").status == "pass"


def test_exit_code_1_when_a_lane_failed(
    plan_file: Callable[..., Path], process: Cli, tmp_path: Path, twin: Callable[[str], Path]
) -> None:
    """A file of another architecture fails its lanes, with the reason in the output."""
    plan = plan_file("qwen3-dense", subject="weights", event="manual-full")
    done = process("certify", "--plan", plan, "--model", twin("mamba"), "--receipts", tmp_path / "receipts")
    assert done.code == 1
    assert "1 fail" in done.out
    assert "'mamba'" in done.out
    assert done.err.startswith("fail   qwen3-dense@cpu: 0 of 1 lanes")


def test_exit_code_2_for_bad_input(process: Cli) -> None:
    """An unknown family: one line on standard error, with the nearest name, and nothing on standard output."""
    done = process("certify", "qwen3-dens", "--twin")
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("error: unknown family 'qwen3-dens'")
    assert "qwen3-dense" in done.err
    assert done.err.count("\n") == 1


def test_exit_code_3_when_nothing_is_selected(process: Cli) -> None:
    """A selection without a leg is never green."""
    done = process("certify", "qwen3-dense", "--tier", "2", "--twin")
    assert done.code == 3
    assert done.err.startswith("error: no leg")


def test_exit_code_4_for_the_machine(process: Cli) -> None:
    """A device that is not here, with the ones that are."""
    done = process("certify", "qwen3-dense", "--twin", "--device", absent_backend())
    assert done.code == 4
    assert "CPU" in done.err


def test_exit_code_4_for_a_leg_that_could_not_run(plan_file: Callable[..., Path], process: Cli, tmp_path: Path) -> None:
    """Weights that are nowhere to be had: the receipt says infra, and so does the exit code."""
    plan = plan_file("qwen3-dense", subject="weights", event="manual-full")
    empty = tmp_path / "empty"
    empty.mkdir()
    done = process(
        "certify", "--plan", plan, "--offline", "--source", empty, "--store", tmp_path / "store", "--receipts", tmp_path
    )
    assert done.code == 4, done.err
    assert read_receipt(tmp_path / "qwen3-dense@cpu" / "receipt.json").status == "infra"


def test_exit_code_5_when_receipts_cannot_be_written(
    plan_file: Callable[..., Path], process: Cli, tmp_path: Path
) -> None:
    """Before anything runs: a file lies where the folder should be."""
    blocked = tmp_path / "receipts"
    blocked.write_text("", encoding="utf-8")
    done = process("certify", "--plan", plan_file("qwen3-dense"), "--receipts", blocked / "deep")
    assert done.code == 5
    assert "receipts" in done.err


def test_a_fail_outranks_what_could_not_run(plan_file: Callable[..., Path], cli: Cli, tmp_path: Path) -> None:
    """Of several legs the worst one decides; `--leg` takes one of them."""
    plan = plan_file("qwen3-dense", "mamba")
    done = cli("certify", "--plan", plan, "--leg", "mamba@cpu", "--receipts", tmp_path / "r", "--json")
    assert done.code == 0
    assert [receipt["leg"] for receipt in json.loads(done.out)] == ["mamba@cpu"]


def test_json_is_one_document_and_nothing_else(plan_file: Callable[..., Path], process: Cli, tmp_path: Path) -> None:
    """Standard output holds the receipts as they are on the disk; standard error holds nothing."""
    plan = plan_file("qwen3-dense", "rwkv7")
    done = process("certify", "--plan", plan, "--json", "--receipts", tmp_path / "receipts")
    assert done.code == 0
    assert done.err == ""
    receipts = json.loads(done.out)
    assert [receipt["leg"] for receipt in receipts] == ["qwen3-dense@cpu", "rwkv7@cpu"]
    for receipt in receipts:
        path = tmp_path / "receipts" / receipt["leg"] / "receipt.json"
        assert json.loads(path.read_text(encoding="utf-8")) == receipt


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to certify"),
        (["--twin"], "nothing to certify"),
        (["qwen3-dense", "--leg", "qwen3-dense@cpu"], "--leg names a leg of a plan: give the plan with --plan"),
        (["qwen3-dense", "--plan", "plan.json"], "leave out FAMILY and --tier"),
        (["--tier", "1", "--plan", "plan.json"], "leave out FAMILY and --tier"),
        (["qwen3-dense", "--model", "x.gguf", "--twin"], "choose one of them"),
        (["--tier", "4", "--twin"], "--tier"),
        (["qwen3-dense", "--jobs", "0"], "--jobs"),
        (["qwen3-dense", "--threads", "many"], "--threads"),
        (["qwen3-dense", "--nonsense"], "--nonsense"),
        (["--plan", "no-such-plan.json"], "no-such-plan.json"),
        (["qwen3-dense", "--twin", "--event", "birthday"], "unknown event 'birthday'"),
        (["nonsense*", "--twin"], "nonsense*"),
        (["qwen3-dense", "--twin", "--manifests", "no-such-folder"], "no-such-folder"),
        (["qwen3-dense", "--twin-of", "no-such.gguf"], "missing_file"),
        (["qwen3-dense", "--twin-of", "x.gguf", "--twin"], "leave out --model, --twin and --plan"),
    ],
)
def test_options_that_do_not_go_together_are_bad_input(cli: Cli, arguments: list[str], words: str) -> None:
    """Each says what is wrong; nothing is run and nothing is printed on standard output."""
    done = cli("certify", *arguments)
    assert done.code == 2
    assert words in done.err
    assert done.out == ""


def test_one_file_is_for_one_leg(cli: Cli, twin: Callable[[str], Path]) -> None:
    """`--model` with two families is refused with the number of legs."""
    done = cli("certify", "qwen3-dense", "mamba", "--model", twin("qwen3-dense"))
    assert done.code == 2
    assert "2 legs were selected" in done.err


def test_an_unknown_leg_of_a_plan_names_the_nearest(cli: Cli, plan_file: Callable[..., Path]) -> None:
    """As for families."""
    done = cli("certify", "--plan", plan_file("qwen3-dense"), "--leg", "qwen3-dens@cpu")
    assert done.code == 2
    assert "qwen3-dense@cpu" in done.err


@pytest.mark.parametrize(
    ("old", "new"),
    [('"cuts": "all"', '"cuts": "classes"'), ('"qwen3"', '"qwen2"'), ('"pull-request"', '"nightly"'), ("{", "[")],
)
def test_a_plan_that_was_edited_is_refused(
    cli: Cli, plan_file: Callable[..., Path], tmp_path: Path, children: list[list[str]], old: str, new: str
) -> None:
    """A parameter, an architecture, the event or the syntax: nothing runs, no receipt is written."""
    path = plan_file("qwen3-dense", lanes=("inspect", "boundary-sweep"))
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    done = cli("certify", "--plan", path, "--receipts", tmp_path / "receipts")
    assert done.code == 2
    assert "plan" in done.err
    assert children == []
    assert not (tmp_path / "receipts").exists()


@pytest.mark.parametrize("verdict", UNREADABLE)
@pytest.mark.parametrize("command", ["certify", "inspect"])
def test_a_bad_file_has_a_named_verdict_and_starts_nothing(
    cli: Cli, twin: Callable[[str], Path], tmp_path: Path, children: list[list[str]], verdict: str, command: str
) -> None:
    """The path, the verdict and what to do, in one line; exit code 2; no child."""
    path = tmp_path / "model.gguf"
    UNREADABLE[verdict](path, twin("qwen3-dense").read_bytes())
    children.clear()
    arguments = ["inspect", path] if command == "inspect" else ["certify", "qwen3-dense", "--model", path]
    done = cli(*arguments)
    assert done.code == 2
    assert done.err.startswith(f"error: {path}: {verdict}: ")
    assert done.err.count("\n") == 1
    assert done.out == ""
    assert children == []


@pytest.mark.parametrize("role", OTHER_ROLES)
def test_a_file_of_another_role_is_refused(cli: Cli, tmp_path: Path, children: list[list[str]], role: str) -> None:
    """`certify` says what the file is and wants a model."""
    path = tmp_path / "model.gguf"
    OTHER_ROLES[role](path, b"")
    done = cli("certify", "qwen3-dense", "--model", path)
    assert done.code == 2
    assert f"error: {path}: wrong_role: a causal language model is needed" in done.err
    assert children == []


@pytest.mark.parametrize("role", ["projector", "encoder", "vocab-only"])
def test_inspect_says_what_another_file_is(cli: Cli, tmp_path: Path, children: list[list[str]], role: str) -> None:
    """A file that is no model is described by its header, without a child."""
    path = tmp_path / "model.gguf"
    OTHER_ROLES[role](path, b"")
    done = cli("inspect", path, "--json")
    assert done.code == 0
    assert json.loads(done.out)["role"] == role
    assert children == []


def test_inspect_describes_a_model(cli: Cli, twin: Callable[[str], Path]) -> None:
    """Architecture, layers, state three ways, period, cuts, frontier and cache, as a table and as JSON."""
    done = cli("inspect", twin("lfm2"), "--json")
    assert (done.code, done.err) == (0, "")
    facts = json.loads(done.out)
    assert (facts["architecture"], facts["role"]) == ("lfm2", "causal")
    contract = facts["contract"]
    assert facts["state_by_metadata"] == facts["state_by_tensors"] == contract["state"]
    assert len(contract["state"]) == 16
    assert contract["legal_cuts"] == list(range(1, 16))
    assert contract["illegal"] == {}
    assert contract["frontier"] == ["l_out-{k-1}"]
    assert contract["cache"] == "KvRecurrent"
    table = cli("inspect", twin("lfm2")).out
    for words in ("lfm2 (causal)", "16, width", "KvRecurrent", "l_out-{k-1}", "legal cuts"):
        assert words in table


def test_inspect_names_what_forbids_a_cut(cli: Cli, twin: Callable[[str], Path]) -> None:
    """Shared caches are shown with the cut."""
    done = cli("inspect", twin("gemma3n"))
    assert done.code == 0
    assert re.search(r"illegal cuts +\d+ \(reads cache_k_l\d+", done.out)


def test_inspect_can_leave_llama_cpp_alone(cli: Cli, twin: Callable[[str], Path], children: list[list[str]]) -> None:
    """With --header-only nothing is loaded."""
    path = twin("qwen3-dense")
    children.clear()
    done = cli("inspect", path, "--header-only", "--json")
    assert done.code == 0
    assert "contract" not in json.loads(done.out)
    assert children == []


def test_inspect_on_a_device_that_is_not_here_is_infra(cli: Cli, twin: Callable[[str], Path]) -> None:
    """The machine is at fault, not the model."""
    done = cli("inspect", twin("qwen3-dense"), "--device", absent_backend())
    assert done.code == 4
    assert "is not on this machine" in done.err


def test_inspect_says_what_llama_cpp_says_of_a_model_that_it_refuses(
    cli: Cli, twin: Callable[[str], Path], tmp_path: Path
) -> None:
    """A sound header with a tensor that the loader does not find."""
    path = tmp_path / "broken.gguf"
    path.write_bytes(twin("qwen3-dense").read_bytes().replace(b"blk.3.attn_q.weight", b"blk.3.attn_Q.weight"))
    done = cli("inspect", path)
    assert done.code == 1
    assert "broken.gguf" in done.err


@pytest.mark.parametrize("name", ["[red]", "[/red]", "a[bold", "]"])
def test_names_with_brackets_are_shown_as_they_are(
    cli: Cli, twin: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    """What comes from files and paths is never taken for markup."""
    path = tmp_path / f"x{name.replace('/', '')}.gguf"
    shutil.copy(twin("qwen3-dense"), path)
    done = cli("inspect", path, "--header-only")
    assert done.code == 0
    assert path.name in done.out.replace("\n", "").replace(" ", "")


def test_an_architecture_with_markup_is_shown_as_it_is(cli: Cli, tmp_path: Path) -> None:
    """The header of a stranger's file may say anything."""
    from tests.agent.header.kit import architecture, gguf, key, tensor, u32

    path = tmp_path / "model.gguf"
    name = "x[/red]\x1b[31m"
    path.write_bytes(gguf([architecture(name), key(f"{name}.block_count", u32(1))], [tensor("a")], data=128))
    done = cli("inspect", path, "--header-only")
    assert done.code in (0, 2)
    assert "\x1b" not in done.out + done.err


def test_the_summary_shows_names_with_brackets(plan_file: Callable[..., Path], cli: Cli, tmp_path: Path) -> None:
    """The folder of the receipts is printed as it is called."""
    folder = tmp_path / "[/bold]receipts[red]"
    done = cli("certify", "--plan", plan_file("qwen3-dense"), "--receipts", folder)
    assert done.code == 0
    assert "[red]" in done.out.replace("\n", "")


def test_help_lists_the_exit_codes(cli: Cli) -> None:
    """The group and `certify` both say what a code means."""
    for arguments in (["--help"], ["certify", "--help"]):
        done = cli(*arguments)
        assert done.code == 0
        for code in range(6):
            assert re.search(rf"\b{code} \w", done.out)


def test_every_command_has_help() -> None:
    """One sentence at least."""
    for command in cli_commands().values():
        assert command.help
        assert command.help.strip().split("\n")[0].rstrip().endswith((".", ":"))


def cli_commands() -> dict[str, Any]:
    """All commands by name."""
    return dict(cli.commands)


def test_the_exit_codes_of_help_and_of_errors_agree() -> None:
    """Every code that an error or a result can give is explained in the help, and none else is."""
    import agent.errors
    from agent.commands.certify import _EXIT_CODES as BY_STATUS
    from agent.errors import AgentError, InternalError
    from matrixgen.errors import MatrixgenError

    explained = {int(number) for number in re.findall(r"(?:: |·\s)(\d+) ", _EXIT_CODES)}
    kinds: list[type[AgentError | MatrixgenError]] = [AgentError, MatrixgenError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    used = {kind.exit_code for kind in kinds if kind is not InternalError} | set(BY_STATUS.values())
    assert used == explained
    documented = {int(number) for number in re.findall(r"(?:: |·\s)(\d+) ", agent.errors.__doc__ or "")}
    assert documented - {InternalError.exit_code} == explained


def test_the_version_is_that_of_the_package(cli: Cli) -> None:
    """`--version` prints it."""
    from agent import __version__

    done = cli("--version")
    assert (done.code, done.out.strip()) == (0, f"skippy-agent, version {__version__}")


def test_an_unknown_command_is_bad_input(cli: Cli) -> None:
    """With the usage, not a traceback."""
    done = cli("certfy")
    assert done.code == 2
    assert "certfy" in done.err


def test_a_fault_of_our_own_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users get a line and a code of its own; maintainers get the rest with a variable."""
    import agent.commands.devices as devices

    def broken(*, as_json: bool) -> int:
        raise ZeroDivisionError("seeded")

    monkeypatch.setattr(devices, "run", broken)
    monkeypatch.delenv("SKIPPY_TRACEBACK", raising=False)
    done = cli("devices")
    assert done.code == 70
    assert done.err.startswith("internal error: ZeroDivisionError: seeded.")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (MemoryError(), 4), (BrokenPipeError(), 141)])
def test_what_ends_a_program_from_outside_has_a_code(
    process: Cli, error: BaseException, code: int, tmp_path: Path
) -> None:
    """Ctrl-C, no memory, and a reader that went away."""
    import subprocess
    import sys

    script = (
        "import agent.commands.devices as devices\n"
        f"def broken(*, as_json): raise {type(error).__name__}()\n"
        "devices.run = broken\n"
        "import sys; sys.argv = ['skippy-agent', 'devices']\n"
        "from agent.cli import main; main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
