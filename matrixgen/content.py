"""What the manifest folder holds, as one object. Reading and checking it is `matrixgen.manifest`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from matrixgen.errors import UnknownFamily

if TYPE_CHECKING:
    from pathlib import Path

    from matrixgen.battery import Batteries
    from matrixgen.caches import Caches
    from matrixgen.family import Family
    from matrixgen.pin import Pin
    from matrixgen.quarantine import Quarantined
    from matrixgen.runner import RunnerClass


class Manifest(NamedTuple):
    """Everything that a maintainer edits. `root` is the folder it was read from."""

    families: tuple[Family, ...]
    pin: Pin
    batteries: Batteries
    runners: tuple[RunnerClass, ...]
    caches: Caches
    quarantine: tuple[Quarantined, ...]
    root: Path

    def family(self, name: str) -> Family:
        """The row called `name`. Raises UnknownFamily, which names the nearest names."""
        for family in self.families:
            if family.family == name:
                return family
        raise UnknownFamily(name, [family.family for family in self.families])
