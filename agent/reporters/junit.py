"""The verdict as JUnit XML: a suite a leg, a case an owed lane, and what no lane explains as a case of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree as ET

from agent.gate.reason import Cause, Reason, State
from agent.gate.verdict import LaneVerdict, LegVerdict, Verdict

# what XML 1.0 cannot hold, not even as a reference
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_OF_A_LANE = frozenset({Cause.LEG_FAILED, Cause.LEG_INFRA, Cause.LANE_NOT_PASSED, Cause.TOO_FEW_COMPARISONS})


def render_junit(verdict: Verdict) -> str:
    """The document. A red reason is a failure, an infra reason an error; nothing is ever reported as skipped."""
    root = ET.Element("testsuites", name="skippy-ci")
    for leg in verdict.legs:
        suite = ET.SubElement(root, "testsuite", name=leg.leg)
        for lane in leg.lanes:
            _lane(suite, leg, lane)
        _case(suite, leg.leg, "receipt", [r for r in leg.reasons if r.cause not in _OF_A_LANE])
        _count(suite)
    run = ET.SubElement(root, "testsuite", name="run")
    _case(run, "run", "receipts and jobs", verdict.reasons)
    if not verdict.legs and not verdict.reasons:
        _case(run, "run", "plan", [Reason(cause=Cause.NO_ROWS, message="the plan has no leg")])
    _count(run)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _lane(suite: ET.Element, leg: LegVerdict, lane: LaneVerdict) -> None:
    start = f"lane {lane.lane}"
    mine = [
        reason
        for reason in leg.reasons
        if reason.cause in _OF_A_LANE and reason.message.startswith((f"{start}:", f"{start} "))
    ]
    if lane.status == "missing":
        mine.append(Reason(cause=Cause.LEG_MISSING, message="no result"))
    case = _case(suite, leg.leg, lane.lane, mine)
    case.set("time", f"{lane.seconds:.3f}")


def _case(suite: ET.Element, classname: str, name: str, reasons: Iterable[Reason]) -> ET.Element:
    case = ET.SubElement(suite, "testcase", classname=_xml(classname), name=_xml(name))
    for reason in reasons:
        kind = "error" if reason.state is State.INFRA else "failure"
        ET.SubElement(case, kind, type=reason.cause.value, message=_xml(reason.message)).text = _xml(reason.message)
    return case


def _count(suite: ET.Element) -> None:
    cases = list(suite)
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    suite.set("errors", str(sum(case.find("failure") is None and case.find("error") is not None for case in cases)))


def _xml(text: str) -> str:
    return _NOT_XML.sub("�", text)
