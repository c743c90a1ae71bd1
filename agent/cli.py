"""The command line of skippy-agent. Commands fill typed options and call the functions that do the work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent import __version__
from agent.errors import AgentError, InternalError

if TYPE_CHECKING:
    from agent.commands.certify import CertifyRequest

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
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output and nothing else there.")


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
@click.option("--twin", is_flag=True, help="Test tiny random models of the same architecture instead of weights.")
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
@_manifests
@_json
def certify(**options: object) -> int:
    """Run the battery of families and write a receipt for each.

    Either name families or a tier, or give a plan made by matrixgen.

    \b
    skippy-agent certify --tier 1 --twin
    skippy-agent certify qwen3-dense --model Qwen3-0.6B-Q8_0.gguf
    skippy-agent certify --plan plan.json --leg mamba@cuda
    """
    from agent.commands.certify import CertifyRequest, run

    request: CertifyRequest = CertifyRequest.from_options(options)
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


def main() -> None:
    """Entry point: every refusal is a message and an exit code, never a traceback."""
    from matrixgen.errors import MatrixgenError

    try:
        code = cli.main(standalone_mode=False)
    except (AgentError, MatrixgenError) as error:
        click.echo(f"error: {error}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        code = 130
    except BrokenPipeError:
        code = 141
    except MemoryError:
        click.echo("error: out of memory", err=True)
        code = 4
    except Exception as error:  # noqa: BLE001 - the last line of defence: users get one line, maintainers the variable
        code = InternalError.report(error)
    sys.exit(code)
