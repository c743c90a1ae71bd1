"""Lanes by name, and the parameters that each takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.errors import LaneUnknown, ParamsInvalid
from agent.lanes.catalog import LANES, find_lane
from matrixgen.battery import LANES as KNOWN_LANES
from matrixgen.battery import RESERVED
from matrixgen.manifest import Manifest
from tests.agent.conftest import ROOT

# refused before a leg runs, so it needs no lane here
WITHOUT_CHECK = {"refuse"}


def test_every_lane_that_a_battery_may_owe_exists() -> None:
    """The names of matrixgen and those of the agent are the same ones."""
    assert set(KNOWN_LANES) - WITHOUT_CHECK <= set(LANES)
    assert set(LANES) <= set(KNOWN_LANES) | set(RESERVED)
    assert all(lane.name == name for name, lane in LANES.items())


def test_the_default_parameters_of_the_manifest_are_accepted(manifest: Manifest) -> None:
    """What batteries.json gives a lane is exactly what the lane takes."""
    for name, params in manifest.batteries.defaults.items():
        if name in LANES:
            LANES[name].read_params(params)


def test_every_battery_gives_parameters_that_are_accepted(manifest: Manifest) -> None:
    """Overrides of events too, for every tier and every shape."""
    read = 0
    for tiers in manifest.batteries.events.values():
        for battery in tiers.values():
            for shape in ("dense", "recurrent", "hybrid", "multimodal", "package", "encoder"):
                for lane in manifest.batteries.lanes_for(battery, shape):
                    if lane.name in LANES:
                        LANES[lane.name].read_params(lane.params)
                        read += 1
    assert read > 50


def defaults() -> dict[str, dict[str, Any]]:
    """Default parameters by lane, of the lanes that have any."""
    data = json.loads((ROOT / "manifests" / "batteries.json").read_text(encoding="utf-8"))
    return {name: lane["params"] for name, lane in data["lanes"].items() if name in LANES}


CASES = [(name, param) for name, params in defaults().items() for param in params]


@pytest.mark.parametrize(("name", "param"), CASES)
def test_a_missing_parameter_is_named(name: str, param: str) -> None:
    """No parameter has a hidden default."""
    params = {key: value for key, value in defaults()[name].items() if key != param}
    with pytest.raises(ParamsInvalid, match=f"{param} is missing"):
        find_lane(name).read_params(params)


@pytest.mark.parametrize("name", list(defaults()))
def test_an_unknown_parameter_is_named(name: str) -> None:
    """A typing error is not ignored."""
    with pytest.raises(ParamsInvalid, match="repeatz is unknown"):
        find_lane(name).read_params({**defaults()[name], "repeatz": 3})


def test_all_wrong_parameters_are_named_at_once() -> None:
    """Missing and unknown ones in one message, with the lane and where to look."""
    with pytest.raises(ParamsInvalid) as refusal:
        find_lane("single-step").read_params({"prompt_tokens": 3, "b": 1, "a": 2})
    assert str(refusal.value) == (
        "parameters of lane single-step: decode_steps is missing, micro_batch is missing, a is unknown, b is unknown; "
        "see manifests/batteries.json"
    )


def test_lists_become_tuples() -> None:
    """Parameters are values: two lanes never share a list."""
    params = find_lane("determinism").read_params(defaults()["determinism"])
    assert params.threads == tuple(defaults()["determinism"]["threads"])
    hash(params)


@pytest.mark.parametrize("name", ["refuse", "nonsense", "", "Chain"])
def test_an_unknown_lane_is_refused_with_the_known_ones(name: str) -> None:
    """The message lists what there is."""
    with pytest.raises(LaneUnknown) as refusal:
        find_lane(name)
    assert repr(name) in str(refusal.value)
    assert "single-step" in str(refusal.value)
