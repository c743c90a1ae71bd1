"""Every finding there is: what is wrong, why it matters, how to repair it. The pages in docs/findings/ are made from this.

Ids are never used again for something else.
"""

from __future__ import annotations

from typing import NamedTuple

from matrixgen.findings import Severity


class Entry(NamedTuple):
    """`severity` is the usual one; `command` is what reports it."""

    title: str
    why: str
    fix: str
    severity: Severity = "error"
    command: str = "validate"


CATALOGUE: dict[str, Entry] = {
    "MG001": Entry(
        "A manifest file cannot be read",
        "The file is missing, is a folder or a device, has more than 64 MiB, or is not UTF-8. Without it there is no plan, and a "
        "plan without one of its files would test something else than was meant.",
        "Restore the file, or give the right folder with `--manifests`.",
    ),
    "MG002": Entry(
        "A manifest file is not JSON",
        "The text does not follow JSON's grammar, or holds a number that cannot be used, such as `NaN` or one of 5,000 digits.",
        "Correct the syntax at the line that is named. `matrixgen fmt` writes families.json in its canonical form.",
    ),
    "MG003": Entry(
        "An object has the same key twice",
        "JSON parsers keep the last one in silence, so a reviewer may read another value than the one that counts.",
        "Keep one of the two.",
    ),
    "MG004": Entry(
        "Nested deeper than 64 levels",
        "No manifest needs that. Deep nesting is a way to exhaust the stack of a parser.",
        "Remove the nesting.",
    ),
    "MG005": Entry(
        "Text with control characters or half of a surrogate pair",
        "The text ends in logs, in workflow files and on terminals, where such characters can hide or change what is seen.",
        "Remove the characters, or write them as words.",
    ),
    "MG010": Entry(
        "The file does not match its schema",
        "A key is missing or unknown, or a value has the wrong type or form. Names have a strict grammar, because they become "
        "parts of job names, cache keys and commands.",
        "The finding says what is allowed there. `matrixgen schema NAME` prints the whole schema.",
    ),
    "MG011": Entry(
        "Two rows have the same family name",
        "The name is the identity of a row. With two, `move` and `explain` would not know which one is meant, and two legs "
        "would have one id.",
        "Rename one of them, or remove it.",
    ),
    "MG012": Entry(
        "A kept row has an architecture that a tombstone drops",
        "Code for a dropped architecture is removed, so the kept row could never load. Often the label hides the architecture: a "
        "file that is sold as `glm4` may say `chatglm` in its header.",
        "Write what `general.architecture` of the file says, pick another file, or take the tombstone back.",
    ),
    "MG013": Entry(
        "A tombstone without reason or architecture",
        "A family is dropped for a reason that users can read in the release notes, and the architecture is what is refused.",
        "Fill in `reason` and `arch`.",
    ),
    "MG014": Entry(
        "Two spellings of one repository",
        "The hub treats them as one, a disk that ignores case mixes them, and a disk that does not fetches the files twice.",
        "Use the hub's spelling in both rows.",
    ),
    "MG015": Entry(
        "A multimodal row of a tier has no projector",
        "Without the mmproj file nothing can be said about the path of images or sound.",
        "Add the projector, or correct the shape if the family has none.",
    ),
    "MG016": Entry(
        "The cache policy contradicts the shape",
        "Recurrent state is not in resident KV: a hybrid with `ResidentKv` loses its state at the cut and answers wrongly.",
        "Use a policy that the finding lists for the shape.",
    ),
    "MG017": Entry(
        "A row of a tier can never be a leg",
        "A shared helper of llama.cpp has no architecture, so no file of it exists. A projector or a draft model is loaded only "
        "beside another model, so there is nothing to split.",
        "Set its tier to null, and certify a family that is built with it.",
    ),
    "MG018": Entry(
        "A package row names neither package nor artifact",
        "Nobody could say what was tested.",
        "Add one of them.",
    ),
    "MG019": Entry(
        "Model and projector are mixed up",
        "A projector that is given as the model fails on a machine, hours later, with a message about the format.",
        "Name the mmproj file in `projector` and the model in `artifact`.",
    ),
    "MG020": Entry(
        "Two files of one artifact differ only by case",
        "On a disk that ignores case, one overwrites the other.",
        "Keep the one that the row means.",
    ),
    "MG021": Entry(
        "Part of a split file is not named",
        "A split file is loaded whole. A shard that is not named is neither fetched nor checked.",
        "Name every shard with its size and SHA-256.",
    ),
    "MG022": Entry(
        "The patch queue is not in order",
        "Patches are applied in the order of their names. Another order in pin.json would give a key to binaries that are not "
        "built so.",
        "Sort the queue by name, each name once. `matrixgen pin --patches DIR` does it.",
    ),
    "MG023": Entry(
        "A lane that does not exist, or in the wrong tier",
        "A lane that cannot run must not look planned. `refuse` is what tombstones owe, and only they.",
        "Use a lane that the finding lists.",
    ),
    "MG024": Entry(
        "A parameter that the lane does not have",
        "It would be ignored, and the lane would run weaker than it reads.",
        "Use a parameter that the finding lists.",
    ),
    "MG025": Entry(
        "A backend that no runner class offers",
        "Jobs with labels that no machine carries wait for a day and then are cancelled.",
        "Add a runner class, or change the battery.",
    ),
    "MG026": Entry(
        "An untrusted event reaches weights or self-hosted machines",
        "A pull request of a fork runs its author's code. On a self-hosted machine that code stays after the job.",
        "Use the subject `twin` and a backend that a hosted class offers.",
    ),
    "MG027": Entry(
        "Two runner classes have the same name",
        "A plan names the class of each leg.",
        "Rename one of them.",
    ),
    "MG028": Entry(
        "`self_hosted` and the labels disagree",
        "Which machines an untrusted event may reach is decided by this flag.",
        "Correct the flag or the labels.",
    ),
    "MG029": Entry(
        "families.json is not in canonical form",
        "One family is one line, so that moving a family is a change of one line.",
        "Run `matrixgen fmt`.",
        severity="warning",
    ),
    "MG030": Entry(
        "A row of a tier is not pinned",
        "Its legs run on a twin, which proves less than real weights do.",
        "Fill in revision, size and SHA-256 of every file.",
        severity="warning",
    ),
    "MG031": Entry(
        "Quarantine of nothing",
        "The entry names a family or a backend that does not exist, so it has no effect, or was meant for another leg.",
        "Correct the name, or remove the entry.",
    ),
    "MG032": Entry(
        "A leg is in quarantine twice",
        "Two entries can say different days and different tickets.",
        "Keep one of them.",
    ),
    "MG033": Entry(
        "The last day of a quarantine is no day",
        "A day that does not exist never comes or always did.",
        "Write a day of the calendar as YYYY-MM-DD.",
    ),
    "MG034": Entry(
        "A quarantine has expired",
        "Quarantine is for a while. After its last day somebody decides anew; nothing is left out for ever by being forgotten.",
        "Remove the entry so that the leg runs again, or give a new day with a new reason.",
    ),
    "MG035": Entry(
        "The model files of the tiers do not fit GitHub's caches",
        "GitHub keeps 10 GB of caches for a repository and evicts the oldest above. When more is saved than fits, every set is "
        "pushed out before it is used again. An error above the 10 GB, a warning above the budget of caches.json.",
        "Lower `largest_set_gb`, so that larger sets come from S3 or the hub.",
        severity="warning",
    ),
    "MG040": Entry(
        "A model file of llama.cpp belongs to no row",
        "A pin may bring a model that nobody has looked at. Whether it can be split is then not known, and not asked.",
        "Add a row, in no tier if need be, or add the stem to `llama_models` of the row that covers it.",
        command="inventory",
    ),
    "MG041": Entry(
        "A row covers a model that llama.cpp no longer has",
        "The file was renamed or dropped upstream. A row of tier 1 or 2 could not be certified on this pin.",
        "Correct `llama_models`, or make the row a tombstone.",
        command="inventory",
    ),
    "MG042": Entry(
        "A P0 or P1 family without evidence",
        "P0 and P1 are the families that must or should be served. The gate is closed when none of them is without a file, or "
        "without a run that passed. An error with `--gate`, else a warning.",
        "Certify a file of the family, or lower its priority.",
        severity="warning",
        command="inventory",
    ),
    "MG043": Entry(
        "An architecture that this llama.cpp does not know",
        "No file with it can be loaded on this pin.",
        "Write what the file's header says.",
        command="inventory",
    ),
    "MG050": Entry(
        "A patch still edits a dropped family",
        "The graph edits are what every rebase of the patch queue costs. As long as they are there, nothing was dropped.",
        "Remove this part of the patch.",
        command="tombstones",
    ),
    "MG051": Entry(
        "A capability table still knows a dropped family",
        "A family that a table or a rule of inference still knows can fall into a wrong but plausible configuration, where it "
        'should be refused as "unsupported family".',
        "Remove the entry.",
        command="tombstones",
    ),
    "MG060": Entry(
        "A tombstone still has traffic",
        "Somebody is served by a family that the next release refuses.",
        "Take the tombstone back with the `move` command that is printed, or tell those users first.",
        command="review",
    ),
    "MG061": Entry(
        "A family is in production and not in tier 1",
        "What is served is tested less than what it is worth.",
        "Run the `move` command that is printed.",
        severity="warning",
        command="review",
    ),
    "MG062": Entry(
        "A tier 1 family that nobody serves",
        "The full battery costs machine hours on every bump.",
        "Run the `move` command that is printed, or say in `reason` why the family stays.",
        severity="warning",
        command="review",
    ),
    "MG063": Entry(
        "Served, and in no row",
        "Telemetry names a family or architecture that the manifest does not know. It is served without any test.",
        "Add a row, or correct the name in the telemetry.",
        severity="warning",
        command="review",
    ),
}


def page(id_: str) -> str:
    """The documentation page of one finding, in Markdown."""
    entry = CATALOGUE[id_]
    return (
        f"# {id_}: {entry.title}\n\n"
        f"<!-- Made from matrixgen/catalogue.py: pytest --update-golden writes it. -->\n\n"
        f"| severity | reported by |\n|---|---|\n| {entry.severity} | `matrixgen {entry.command}` |\n\n"
        f"## Why it matters\n\n{entry.why}\n\n"
        f"## What to do\n\n{entry.fix}\n"
    )


def index() -> str:
    """The page that lists all findings."""
    rows = [
        f"| [{id_}]({id_}.md) | {entry.severity} | {entry.title} | `{entry.command}` |"
        for id_, entry in CATALOGUE.items()
    ]
    return (
        "# Findings\n\n"
        "<!-- Made from matrixgen/catalogue.py: pytest --update-golden writes it. -->\n\n"
        "Everything that `matrixgen` can find wrong has an id that never changes its meaning. An error stops every command that\n"
        "reads the manifest; a warning is told and stops nothing.\n\n"
        "| id | severity | what is wrong | reported by |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )
