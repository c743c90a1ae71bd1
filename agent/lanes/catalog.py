"""All lanes by name, with the parameters that each one takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.errors import LaneUnknown, ParamsInvalid
from agent.lanes import (
    backend_parity,
    boundary_sweep,
    cache_policy,
    cache_recurrent,
    cache_resident,
    chain,
    concurrent_record,
    contract,
    conversation,
    determinism,
    dtype_matrix,
    edges,
    inspect,
    media_prefill,
    package,
    radix_cache,
    single_step,
    state_handoff,
)
from agent.lanes.result import LaneResult
from agent.lanes.subject import Subject


@dataclass(frozen=True)
class Lane:
    """A lane: its name, the type of its parameters and its check."""

    name: str
    params: type[Any]
    check: Callable[[Subject, Any], LaneResult]

    def run(self, subject: Subject, params: Mapping[str, Any]) -> LaneResult:
        """Check `subject`.

        Raises:
            ParamsInvalid: a parameter is missing or unknown.
        """
        return self.check(subject, self.read_params(params))

    def read_params(self, params: Mapping[str, Any]) -> Any:
        """The parameters as the lane's own type; lists become tuples."""
        known = {field.name for field in dataclasses.fields(self.params)}
        missing, unknown = known - set(params), set(params) - known
        if missing or unknown:
            words = [
                *(f"{name} is missing" for name in sorted(missing)),
                *(f"{name} is unknown" for name in sorted(unknown)),
            ]
            raise ParamsInvalid(f"parameters of lane {self.name}: {', '.join(words)}; see manifests/batteries.json")
        return self.params(
            **{name: tuple(value) if isinstance(value, list) else value for name, value in params.items()}
        )


_MODULES = {
    "inspect": inspect,
    "contract": contract,
    "single-step": single_step,
    "chain": chain,
    "boundary-sweep": boundary_sweep,
    "dtype-matrix": dtype_matrix,
    "state-handoff": state_handoff,
    "cache-resident": cache_resident,
    "cache-recurrent": cache_recurrent,
    "cache-policy": cache_policy,
    "concurrent-record": concurrent_record,
    "radix-cache": radix_cache,
    "conversation": conversation,
    "determinism": determinism,
    "edges": edges,
    "package": package,
    "media-prefill": media_prefill,
    "backend-parity": backend_parity,
}

LANES: Mapping[str, Lane] = {name: Lane(name, module.Params, module.run) for name, module in _MODULES.items()}


def find_lane(name: str) -> Lane:
    """The lane called `name`.

    Raises:
        LaneUnknown: there is none.
    """
    try:
        return LANES[name]
    except KeyError:
        raise LaneUnknown(f"this skippy-agent has no lane {name!r}; it has {', '.join(LANES)}") from None
