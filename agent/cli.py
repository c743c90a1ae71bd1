"""The command line of skippy-agent. Commands fill typed options and call the functions that do the work."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from agent import __version__
from agent.errors import AgentError, InternalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.commands.certify import CertifyRequest

_CLOSED_PIPE = 141  # as a shell has it of a program that SIGPIPE ended
_WRONG_ARGUMENT = 2
_EXIT_CODES = """\b
Exit codes: 0 every owed lane passed · 1 a lane failed · 2 bad input ·
3 nothing selected · 4 the machine, the network or the disk · 5 a file could not be written"""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}, epilog=_EXIT_CODES)
@click.version_option(__version__, prog_name="skippy-agent")
def cli() -> None:
    """Prove that a split GGUF model is equivalent to the whole one, on this llama.cpp."""


_manifests = click.option(
    "--manifests",
    type=click.Path(path_type=Path),
    help="Folder of the manifests. [default: ./manifests, else the packaged ones]",
)
_PATH = click.Path(path_type=Path)
_plan = click.option("--plan", type=_PATH, required=True, help="The plan.json that the receipts are of.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output and nothing else there.")
_store = click.option(
    "--store",
    type=click.Path(path_type=Path),
    help="Folder of the files. [default: SKIPPY_STORE, else store in the cache folder]",
)


def _sources(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that say where files may come from."""
    source = click.option(
        "--source",
        "sources",
        multiple=True,
        help="Where files come from: hub, hub-cache, s3://..., release:..., run:..., a folder (docs/store.md). May be repeated; "
        "asked in this order. [default: SKIPPY_SOURCES, else hub-cache hub]",
    )
    offline = click.option("--offline", is_flag=True, help="Use no network: what is not on this machine is an error.")
    return _store(source(offline(command)))


@cli.command(epilog=_EXIT_CODES)
@click.argument("families", nargs=-1, metavar="[FAMILY]...")
@click.option(
    "--tier", "tiers", type=click.IntRange(1, 3), multiple=True, help="All families of a tier; may be repeated."
)
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="A plan.json instead of a selection.")
@click.option("--leg", "leg_ids", multiple=True, metavar="ID", help="Only this leg of the plan; may be repeated.")
@click.option(
    "--event", default="manual-full", show_default=True, help="Whose battery to run; see manifests/batteries.json."
)
@click.option("--model", type=click.Path(path_type=Path), help="A real GGUF (any shard of a split one) for one family.")
@click.option("--projector", type=click.Path(path_type=Path), help="The projector (mmproj GGUF) of --model.")
@click.option("--twin", is_flag=True, help="Test tiny random models of the same architecture instead of weights.")
@click.option(
    "--twin-of",
    metavar="FILE|hf://OWNER/REPO@REV/PATH",
    help="Test a twin with the layers of this model; only its header is read. Without FAMILY, its architecture chooses it.",
)
@click.option("--device", help="Device or backend, such as CUDA0 or metal. [default: the best one present]")
@click.option(
    "--threads", type=click.IntRange(1, 512), help="CPU threads in a leg. [default: 1 for twins, all for weights]"
)
@click.option(
    "--jobs", type=click.IntRange(1, 256), help="Legs at once. [default: one a core for twins, 1 for weights]"
)
@click.option(
    "--receipts",
    type=click.Path(path_type=Path),
    default=Path("receipts"),
    show_default=True,
    help="Where receipts go.",
)
@click.option("--resume", is_flag=True, help="Keep the lanes that an interrupted run of the same plan has ended.")
@click.option(
    "--build",
    "build_file",
    type=_PATH,
    metavar="plan|ARCHIVE|DIR",
    help="Test the libraries of this build (docs/build.md); plan: fetch the one that the plan asks for. "
    "[default: those of the binding]",
)
@_sources
@_manifests
@_json
def certify(**options: object) -> int:
    """Run the battery of families and write a receipt for each.

    Either name families or a tier, or give a plan made by matrixgen.

    \b
    skippy-agent certify --tier 1 --twin
    skippy-agent certify qwen3-dense --model Qwen3-0.6B-Q8_0.gguf
    skippy-agent certify --plan plan.json --leg mamba@cuda --build plan
    """
    from agent.commands.certify import CertifyRequest, run
    from agent.commands.open_store import StoreRequest
    from agent.commands.use_build import BuildChoice, use_build

    build = cast("Path | None", options.pop("build_file"))
    request: CertifyRequest = CertifyRequest.from_options(options)
    choice = BuildChoice(
        build=build,
        plan=request.plan_file,
        leg_ids=request.leg_ids,
        manifests=request.manifests,
        store=StoreRequest(folder=request.store, sources=request.sources, offline=request.offline),
    )
    with use_build(choice):
        return run(request)


@cli.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--header-only", is_flag=True, help="Read the header and do not load the model.")
@click.option("--device", help="Device or backend. [default: the best one present]")
@_json
def inspect(path: Path, header_only: bool, device: str | None, as_json: bool) -> int:
    """Say what a GGUF is: architecture, layers, state, period, legal cuts, what crosses them, and the cache it may use."""
    from agent.commands.inspect import run

    return run(path, header_only=header_only, device=device, as_json=as_json)


@cli.command()
@click.option(
    "--receipts", type=click.Path(path_type=Path), default=Path("receipts"), show_default=True, help="Their folder."
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Where the page goes. [default: report.html beside them]"
)
def report(receipts: Path, output: Path | None) -> int:
    """Write one HTML page of all receipts in a folder; it needs no network."""
    from agent.commands.report import run

    return run(receipts, output)


@cli.command()
@_json
def devices(as_json: bool) -> int:
    """List the devices that this build of llama.cpp can use here."""
    from agent.commands.devices import run

    return run(as_json=as_json)


@cli.command()
@click.argument("architectures", nargs=-1, metavar="[ARCHITECTURE]...")
@click.option("--build", "build", is_flag=True, help="Build the files and print their paths.")
@_json
def twins(architectures: tuple[str, ...], build: bool, as_json: bool) -> int:
    """List the twins that can be built, with the layer pattern of each."""
    from agent.commands.twins import run

    return run(architectures, build=build, as_json=as_json)


@cli.command()
@click.argument("families", nargs=-1, metavar="[FAMILY]...")
@click.option("--build", "build", type=_PATH, metavar="ARCHIVE|DIR", help="Ask this build. [default: the binding's]")
@_manifests
@_json
def refuse(families: tuple[str, ...], build: Path | None, manifests: Path | None, as_json: bool) -> int:
    """Show that a build refuses every dropped family (tier 3) with a clean error. No model is needed."""
    from agent.commands.open_store import StoreRequest
    from agent.commands.refuse import run
    from agent.commands.use_build import BuildChoice, use_build

    store = StoreRequest(folder=None, sources=(), offline=True)
    with use_build(BuildChoice(build=build, plan=None, leg_ids=(), manifests=manifests, store=store)):
        return run(families, manifests=manifests, as_json=as_json)


@cli.command()
@click.argument("families", nargs=-1, metavar="[FAMILY]...")
@click.option("--tier", "tiers", type=click.IntRange(1, 2), multiple=True, help="All families of a tier. [default: 1]")
@click.option("--fault", "faults", multiple=True, help="Only this fault; may be repeated.")
@click.option("--jobs", type=click.IntRange(1, 256), help="Legs at once. [default: one a core]")
@_manifests
@_json
def selftest(
    families: tuple[str, ...],
    tiers: tuple[int, ...],
    faults: tuple[str, ...],
    jobs: int | None,
    manifests: Path | None,
    as_json: bool,
) -> int:
    """Seed faults into llama.cpp and show that the lanes catch each one on every architecture it applies to."""
    from agent.commands.selftest import run

    return run(families, tiers or (1,), faults, jobs=jobs, manifests=manifests, as_json=as_json)


@cli.command(name="record-contracts")
@click.argument("families", nargs=-1, metavar="[FAMILY]...")
@click.option("--tier", "tiers", type=click.IntRange(1, 2), multiple=True, help="All families of a tier. [default: 1]")
@_manifests
def record_contracts(families: tuple[str, ...], tiers: tuple[int, ...], manifests: Path | None) -> int:
    """Write what crosses the cuts of twins, on this llama.cpp, to contracts.json beside the manifests."""
    from agent.commands.record_contracts import run

    return run(families, tiers or (1,), manifests=manifests)


@cli.command()
@_plan
@click.option(
    "--receipts", type=_PATH, required=True, metavar="DIR", help="Folder that the receipts were downloaded to."
)
@click.option(
    "--builds",
    type=_PATH,
    metavar="DIR",
    help="Folder with the record of each build (build.json or contents.json): trace the libraries to them.",
)
@click.option(
    "--repository", envvar="GITHUB_REPOSITORY", metavar="OWNER/NAME", help="Of the run. [env: GITHUB_REPOSITORY]"
)
@click.option("--run-id", envvar="GITHUB_RUN_ID", metavar="ID", help="Run whose receipts count. [env: GITHUB_RUN_ID]")
@click.option(
    "--attempt", type=click.IntRange(1), envvar="GITHUB_RUN_ATTEMPT", help="Its attempt. [env: GITHUB_RUN_ATTEMPT]"
)
@click.option(
    "--base-commit", envvar="GITHUB_SHA", metavar="SHA", help="The product's commit that was tested. [env: GITHUB_SHA]"
)
@click.option("--base-tree", metavar="SHA", help="The tree of that commit.")
@click.option(
    "--needs", envvar="SKIPPY_NEEDS", metavar="JSON", help="The `needs` context of the gate's job. [env: SKIPPY_NEEDS]"
)
@click.option("--require-signature", is_flag=True, help="Count only receipts with a signature bundle beside them.")
@click.option("-o", "--output", type=_PATH, help="Write verdict.json here.")
@click.option(
    "--summary",
    type=_PATH,
    envvar="GITHUB_STEP_SUMMARY",
    help="Append Markdown to this file. [env: GITHUB_STEP_SUMMARY]",
)
@click.option("--junit", type=_PATH, help="Write JUnit XML here.")
@_json
def gate(plan: Path, **options: object) -> int:
    """Judge receipts against the plan and say why, leg by leg.

    Exits 0 if the verdict is green, 1 if it is red, 4 if only the machines are to blame, 2 on bad input.
    """
    from agent.commands.gate import GateRequest, run

    request: GateRequest = GateRequest.from_options({"plan": plan, **options})
    return run(request)


@cli.command()
@click.option("--plan", type=_PATH, help="The plan.json that was tested.")
@click.option("--verdict", type=_PATH, help="The verdict.json of `skippy-agent gate`.")
@click.option("--receipts", type=_PATH, metavar="DIR", help="Judge these receipts again before anything is written.")
@click.option(
    "--repository", envvar="GITHUB_REPOSITORY", metavar="OWNER/NAME", help="On GitHub. [env: GITHUB_REPOSITORY]"
)
@click.option("--git", metavar="ADDRESS", help="Any repository that git reaches, instead of GitHub's API.")
@click.option(
    "--api", envvar="GITHUB_API_URL", default="https://api.github.com", show_default=True, help="Address of the API."
)
@click.option("--branch", default="main", show_default=True, help="The branch that holds the pin.")
@click.option(
    "--layout",
    type=click.Choice(["json", "upstream"]),
    default="json",
    show_default=True,
    help="json: this project's pin.json; upstream: a text file with the commit.",
)
@click.option("--pin-file", help="Path of the pin file. [default: that of the layout]")
@click.option(
    "--if-main-moved",
    type=click.Choice(["retest-if-certified-inputs-moved", "retest-always"]),
    default="retest-if-certified-inputs-moved",
    show_default=True,
    help="What to do when the branch is not at the tested commit any more.",
)
@click.option(
    "--certified-input",
    "certified_inputs",
    multiple=True,
    metavar="PATH",
    help="One more path that must not have moved; a folder ends in /. Repeatable.",
)
@click.option(
    "--max-age",
    "max_age_hours",
    type=click.FloatRange(0),
    default=24.0,
    show_default=True,
    help="Of the verdict, hours.",
)
@click.option(
    "--pull-request/--no-pull-request", default=True, show_default=True, help="Open one where a rule refuses the push."
)
@click.option("--require-builds", is_flag=True, help="Only if the verdict traced the libraries to the plan's builds.")
@click.option("--check-run", metavar="NAME", help="Also make a check run of this name on the tested commit.")
@click.option(
    "--require-check", "require_checks", multiple=True, metavar="NAME", help="Only if this check of the run is green."
)
@click.option("--workflow", metavar="PATH", help="Workflow file that makes the required checks.")
@click.option(
    "--check-app-id",
    type=int,
    default=15368,
    show_default=True,
    help="App that makes the required checks (GitHub Actions).",
)
@click.option(
    "--preflight", is_flag=True, help="Only find out whether the token may publish; run it before anything else."
)
@click.option("--dry-run", is_flag=True, help="Decide everything and write nothing.")
@click.option("--state", "state_file", type=_PATH, help="Write what became of it here, as JSON.")
@_json
def publish(**options: object) -> int:
    """Move the pin on a green verdict: one file, on exactly the commit that was tested, never forced.

    The token comes from GITHUB_TOKEN. Exits 0 if the pin is published or a pull request asks for it, 1 if it must be
    tested again or was refused, 4 if the repository could not be asked.
    """
    from agent.commands.publish import PublishRequest, run

    request: PublishRequest = PublishRequest.from_options(options)
    return run(request)


@cli.command(name="verify")
@_plan
@click.option("--receipts", type=_PATH, metavar="DIR", help="Check the receipts in this folder.")
@click.option("--verdict", type=_PATH, help="Check this verdict.json; with --receipts it is also judged again.")
@click.option("--require-signature", is_flag=True, help="Each receipt must have a signature bundle beside it.")
@click.option("--max-age", "max_age_hours", type=click.FloatRange(0), help="The verdict may be this old, in hours.")
@_json
def verify_receipts(
    plan: Path,
    receipts: Path | None,
    verdict: Path | None,
    require_signature: bool,
    max_age_hours: float | None,
    as_json: bool,
) -> int:
    """Check receipts, a verdict and the statements beside them, offline, and say what was not checked."""
    from agent.commands.verify import run

    return run(
        plan, receipts, verdict, require_signature=require_signature, max_age_hours=max_age_hours, as_json=as_json
    )


@cli.command()
@click.argument("files", nargs=-1, required=True, type=_PATH, metavar="FILE...")
def statement(files: tuple[Path, ...]) -> int:
    """Write the in-toto statement of receipts or verdicts beside them, and the predicate for actions/attest."""
    from agent.commands.verify import run_statement

    return run_statement(files)


@cli.command(epilog=_EXIT_CODES)
@click.argument("families", nargs=-1, metavar="[FAMILY]...")
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="A plan.json instead of families.")
@click.option("--leg", "leg_ids", multiple=True, metavar="ID", help="Only this leg of the plan; may be repeated.")
@click.option("--builds", is_flag=True, help="Also the builds that the legs of the plan wait for (docs/build.md).")
@click.option("--stage", metavar="START:END", help="Of the families' layer packages, only what this stage owns.")
@_sources
@_manifests
@_json
def fetch(
    families: tuple[str, ...],
    plan_file: Path | None,
    leg_ids: tuple[str, ...],
    builds: bool,
    stage: str | None,
    store: Path | None,
    sources: tuple[str, ...],
    offline: bool,
    manifests: Path | None,
    as_json: bool,
) -> int:
    """Bring the weights of families into the store, verified, and print their paths.

    \b
    skippy-agent fetch qwen3-dense
    skippy-agent fetch --plan plan.json --leg mamba@cuda --builds
    skippy-agent fetch laguna --stage 0:16
    """
    from agent.commands.fetch import run, run_stage
    from agent.commands.open_store import StoreRequest

    request = StoreRequest(folder=store, sources=sources, offline=offline)
    if stage is not None:
        if plan_file or leg_ids or builds:
            raise UsageError("--stage is about families: leave out --plan, --leg and --builds")
        return run_stage(families, stage, manifests=manifests, store=request, as_json=as_json)
    return run(
        families,
        plan_file=plan_file,
        leg_ids=leg_ids,
        builds=builds,
        manifests=manifests,
        store=request,
        as_json=as_json,
    )


@cli.group()
def cache() -> None:
    """Look at the store of model files, verify it, make room in it."""


@cache.command(name="ls")
@_store
@_json
def cache_ls(store: Path | None, as_json: bool) -> int:
    """List the files, the one that was not used for longest first."""
    from agent.commands.cache import run_ls

    return run_ls(store, as_json=as_json)


@cache.command(name="verify")
@_store
@_json
def cache_verify(store: Path | None, as_json: bool) -> int:
    """Hash every file anew; what is wrong is put into quarantine and fetched again when it is needed."""
    from agent.commands.cache import run_verify

    return run_verify(store, as_json=as_json)


@cache.command(name="gc")
@click.option(
    "--free", metavar="SIZE", help="Space of the disk that is to be free. [default: SKIPPY_STORE_FLOOR, else 2GiB]"
)
@click.option("--unpinned", is_flag=True, help="Also remove every file that no row of the manifests pins.")
@click.option("--dry-run", is_flag=True, help="Say what would go and remove nothing.")
@_store
@_manifests
@_json
def cache_gc(
    free: str | None, unpinned: bool, dry_run: bool, store: Path | None, manifests: Path | None, as_json: bool
) -> int:
    """Make room: leftovers first, then the files that were not used for longest; never what a running leg uses."""
    from agent.commands.cache import run_gc

    return run_gc(store, free=free, unpinned=unpinned, manifests=manifests, dry_run=dry_run, as_json=as_json)


@cli.group()
def package() -> None:
    """Write a model as a layer package, validate one, put a stage of one together (docs/package.md)."""


@package.command(name="write", epilog=_EXIT_CODES)
@click.argument("model", type=_PATH)
@click.option("-o", "--output", type=_PATH, required=True, metavar="DIR", help="Folder to make; must not be there yet.")
@click.option("--model-id", required=True, metavar="OWNER/REPO:SELECTOR", help="Coordinate of the model.")
@click.option("--source-repo", metavar="OWNER/REPO", help="Where the model came from.")
@click.option("--source-revision", metavar="SHA", help="Its commit there.")
@click.option("--source-file", metavar="PATH", help="Its first file there. [default: the name of MODEL]")
@click.option("--projector", "projectors", type=_PATH, multiple=True, help="A multimodal projector; repeatable.")
@click.option(
    "--abi-version", default="0.1.0", show_default=True, help="Of the product's library that is to load the package."
)
@_json
def package_write(**options: object) -> int:
    """Write MODEL, split or not, as a package: one part a layer, and compare every byte with it.

    \b
    skippy-agent package write Qwen3-0.6B-Q8_0.gguf -o qwen3-layers --model-id Qwen/Qwen3-0.6B-GGUF:Q8_0
    """
    from agent.commands.package import WriteRequest, run_write

    request: WriteRequest = WriteRequest.from_options(options)
    return run_write(request)


@package.command(name="validate", epilog=_EXIT_CODES)
@click.argument("folder", type=_PATH, metavar="PACKAGE")
@click.option("--model", type=_PATH, help="Compare every byte with the GGUF that the package was made of.")
@_json
def package_validate(folder: Path, model: Path | None, as_json: bool) -> int:
    """Check a package: sizes, digests, every tensor owned once; with --model also that nothing is missing or changed."""
    from agent.commands.package import run_validate

    return run_validate(folder, model, as_json=as_json)


@package.command(name="materialise", epilog=_EXIT_CODES)
@click.argument("folder", type=_PATH, metavar="PACKAGE")
@click.option("--stage", required=True, metavar="START:END", help="First layer and the one after the last.")
@click.option("-o", "--output", type=_PATH, required=True, help="The GGUF to write; replaced when all of it is there.")
@click.option("--stand-ins", is_flag=True, help="Add zeros for all other layers: an unpatched llama.cpp loads that.")
@_json
def package_materialise(folder: Path, stage: str, output: Path, stand_ins: bool, as_json: bool) -> int:
    """Verify the parts of a stage and put them together as one GGUF; only these parts need to be in PACKAGE.

    \b
    skippy-agent package materialise qwen3-layers --stage 0:14 -o stage-0.gguf
    """
    from agent.commands.package import run_materialise

    return run_materialise(folder, stage, output, stand_ins=stand_ins, as_json=as_json)


_llama_src = click.option("--llama-src", type=_PATH, metavar="DIR", help="Root of a llama.cpp checkout.")


@cli.command()
@_llama_src
@click.option(
    "--build",
    type=_PATH,
    metavar="ARCHIVE|DIR",
    help="A build, or a folder of libraries. [default: the libraries of the binding]",
)
@click.option("--rust", type=_PATH, multiple=True, metavar="FILE", help="Mirror the repr(C) structs of it; repeatable.")
@click.option("--struct", "structs", multiple=True, metavar="NAME", help="Only this one of them; repeatable.")
@click.option(
    "--header",
    "headers",
    type=_PATH,
    multiple=True,
    metavar="FILE",
    help="Compare them with this C header; repeatable.",
)
@click.option("--include", "includes", type=_PATH, multiple=True, metavar="DIR", help="Where headers include from.")
@click.option("--output", type=_PATH, metavar="DIR", help="Write the C assertions, the layouts and the report there.")
@_json
def abi(**options: object) -> int:
    """Compare struct layouts: binding against headers and libraries, Rust against C. No model is opened.

    \b
    skippy-agent abi --llama-src llama.cpp --build build.tar
    skippy-agent abi --rust lib.rs --struct skippy_iteration_request --header skippy.h
    """
    from agent.commands.abi import AbiRequest, run

    request: AbiRequest = AbiRequest.from_options(options)
    return run(request)


@cli.command(name="lint-patches")
@click.option("--patches", type=_PATH, required=True, metavar="DIR", help="Folder of the patch queue.")
@_llama_src
@click.option(
    "--reviewed", type=_PATH, metavar="FILE", help="Removed lines that may go. [default: reviewed.txt in DIR]"
)
@_json
def lint_patches(patches: Path, llama_src: Path | None, reviewed: Path | None, as_json: bool) -> int:
    """Check a patch queue: numbers, whether it applies in order, and the guards of upstream that it removes."""
    from agent.commands.lint_patches import run

    return run(patches, llama_src=llama_src, reviewed=reviewed, as_json=as_json)


@cli.command()
@_llama_src
@click.option("--patches", type=_PATH, metavar="DIR", help="Folder of the patch queue. [default: no patches]")
@click.option("--plan", type=_PATH, help="Build the pin of this plan.json; fetched unless --llama-src is given.")
@click.option("--key", metavar="KEY", help="Which build of the plan.")
@click.option(
    "--backend", type=click.Choice(["cpu", "cuda", "metal", "vulkan", "rocm"]), help="[default: that of the key]"
)
@click.option("--commit", metavar="SHA", help="The commit that is wanted; fetched unless --llama-src is given.")
@click.option("--cmake-arg", "cmake_args", multiple=True, metavar="-DNAME=VALUE", help="For cmake; repeatable.")
@click.option("--jobs", type=click.IntRange(1, 256), default=1, show_default=True, help="Compilers at once.")
@click.option("--work", type=_PATH, metavar="DIR", help="Keep objects here; what did not change is not compiled again.")
@click.option("-o", "--output", type=_PATH, required=True, help="An archive, if the name ends in .tar; else a folder.")
@_json
def build(**options: object) -> int:
    """Build the libraries of a llama.cpp with its patches, and record what they are made of.

    \b
    skippy-agent build --llama-src llama.cpp --patches patches --backend cpu -o build.tar
    """
    from agent.commands.build import BuildOptions, run

    request: BuildOptions = BuildOptions.from_options(options)
    return run(request)


@cli.command(epilog=_EXIT_CODES)
@click.argument("family")
@click.option("--model", type=_PATH, help="The GGUF to test (any shard of a split one).")
@click.option("--twin", is_flag=True, help="Test a tiny random model of the family's architecture.")
@click.option("--bin-dir", type=_PATH, metavar="DIR", help="Folder of the binaries.")
@click.option("--build", type=_PATH, metavar="ARCHIVE|DIR", help="A build that holds them; it is verified first.")
@click.option("--check", "checks", multiple=True, metavar="NAME", help="Only this check; repeatable. [default: all]")
@click.option(
    "--cut", "cuts", type=int, multiple=True, help="A layer where the model may be cut; repeatable. [default: derived]"
)
@click.option(
    "--backend",
    type=click.Choice(["cpu", "cuda", "metal", "vulkan", "rocm"]),
    default="cpu",
    show_default=True,
    help="Where the binaries run the model.",
)
@click.option("--width", type=click.IntRange(1), help="Elements of an activation. [default: the embedding length]")
@click.option("--package", type=_PATH, metavar="DIR", help="A layer package of the model, to be tested as well.")
@click.option("--timeout", type=click.FloatRange(1), default=1200.0, show_default=True, help="Seconds for one program.")
@click.option(
    "--startup-timeout",
    type=click.FloatRange(1),
    default=180.0,
    show_default=True,
    help="Seconds until a server answers.",
)
@click.option("--tokens", type=click.IntRange(1, 384), default=48, show_default=True, help="Of each answer compared.")
@click.option("--receipts", type=_PATH, default=Path("receipts-prebuilt"), show_default=True, help="Where receipts go.")
@_manifests
@_json
def prebuilt(**options: object) -> int:
    """Test the product's own binaries on a model and write a receipt, with their reports and logs beside it.

    \b
    skippy-agent prebuilt qwen3-dense --model Qwen3-0.6B-Q8_0.gguf --bin-dir target/release
    skippy-agent prebuilt jamba --twin --bin-dir target/release --check tokens
    """
    from agent.commands.prebuilt import PrebuiltOptions, run

    request: PrebuiltOptions = PrebuiltOptions.from_options(options)
    return run(request)


def main() -> None:
    """Entry point: every refusal is a message and an exit code, never a traceback."""
    from matrixgen.errors import MatrixgenError

    try:
        code = cli.main(standalone_mode=False)
    except (AgentError, MatrixgenError) as error:
        for finding in getattr(error, "findings", ()):
            click.echo(
                f"{finding.file}:{finding.line}: {finding.severity} {finding.id} {finding.pointer}: {finding.message}",
                err=True,
            )
        click.echo(f"error: {error}", err=True)
        # here 1 means that a lane failed: a manifest that is wrong is a wrong argument
        code = _WRONG_ARGUMENT if isinstance(error, MatrixgenError) and error.exit_code == 1 else error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        sys.stdout.flush()
        os._exit(130)  # threads may still follow children, which end when their pipes close
    except BrokenPipeError:
        code = _CLOSED_PIPE
    except SystemExit as ended:  # how click ends where the reader of its output has gone
        code = _CLOSED_PIPE if isinstance(ended.__context__, BrokenPipeError) else ended.code
    except MemoryError:
        click.echo("error: out of memory", err=True)
        code = 4
    except Exception as error:  # noqa: BLE001 - the last line of defence: users get one line, maintainers the variable
        code = InternalError.report(error)
    sys.exit(code)
