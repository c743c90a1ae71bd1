"""What a state weighs, told three ways: by the header's arithmetic, by the cache tensors in the graph, and by an export."""

from __future__ import annotations

import math

from agent.engine.dataflow import analyse
from agent.engine.session import PARTIAL_STATE
from agent.header.architectures import COMPRESSED
from agent.header.state_size import CELL_BYTES, kv_page_bytes, recurrent_bytes, window_bytes
from agent.lanes.result import Findings
from agent.lanes.subject import Subject
from agent.lanes.workload import Workload

_MOST_CACHES = 3  # whole context, sliding window, indexer
_FEW, _MORE = 8, 16  # tokens; no window of a model is smaller


def check_state_bytes(subject: Subject, micro_batch: int, findings: Findings) -> None:
    """Export after a few and after some more tokens; recurrent bytes must be the predicted ones, and so must the growth."""
    exports = {count: _export(subject, micro_batch, count) for count in (_FEW, _MORE)}
    total, partial = exports[_MORE]
    findings.measurements |= {"state_bytes": total, "state_tokens": _MORE}
    if any(kind.recurrent for kind in subject.contract.state):
        window = window_bytes(subject.header, _MORE, subject.shape(micro_batch).sequences)
        predicted = recurrent_bytes(subject.header) + window
        findings.expect(partial == predicted, f"{partial} recurrent bytes exported, the header predicts {predicted}")
        findings.measurements["recurrent_bytes"] = partial - window
    _check_growth(subject, micro_batch, total - exports[_FEW][0], findings)


def _check_growth(subject: Subject, micro_batch: int, growth: int, findings: Findings) -> None:
    tokens = _MORE - _FEW
    if subject.header.architecture in COMPRESSED:
        pages = kv_page_bytes(subject.header, _MORE) - kv_page_bytes(subject.header, _FEW)
        findings.measurements["kv_bytes_a_token"] = pages // tokens
        _expect_cells(growth, pages, findings)
        return
    rows, indexers = _row_bytes(subject, micro_batch)
    findings.measurements["kv_bytes_a_token"] = rows
    if not rows:
        findings.expect(growth == 0, f"a model without attention exports {growth} bytes more for {tokens} tokens")
        return
    if indexers:
        # an indexer may keep pooled blocks besides its keys, which no header tells
        findings.expect(
            growth - rows * tokens >= CELL_BYTES * tokens,
            f"{tokens} tokens more export {growth} bytes more, less than their rows of {rows * tokens} and their cells",
        )
        return
    predicted = kv_page_bytes(subject.header, 1)
    findings.expect(predicted == rows, f"the header predicts {predicted} KV bytes a token, the graph keeps {rows}")
    _expect_cells(growth, rows * tokens, findings)


def _expect_cells(growth: int, rows: int, findings: Findings) -> None:
    """Besides their rows, tokens need cells in one or more caches."""
    tokens = _MORE - _FEW
    cells = range(CELL_BYTES * tokens, (_MOST_CACHES + 1) * CELL_BYTES * tokens, CELL_BYTES * tokens)
    findings.expect(
        growth - rows in cells,
        f"{tokens} tokens more export {growth} bytes more; their KV rows alone are {rows}, and their cells "
        f"{cells[0]} for each cache",
    )


def _row_bytes(subject: Subject, micro_batch: int) -> tuple[int, bool]:
    """Bytes of keys and values a token over all layers, and whether a layer keeps an indexer's keys besides."""
    flow = analyse(subject.anatomy(micro_batch).step(1).graphs[0])
    total = 0
    for index, cache in flow.caches.items():
        if cache.kind[-1] in "kv":
            tensor = flow.graph.tensors[index]
            total += tensor.n_bytes // math.prod(tensor.shape[1:])
    return total, any(names.count("k") > 1 or "idx_k" in names for names in subject.contract.caches)


def _export(subject: Subject, micro_batch: int, count: int) -> tuple[int, int]:
    workload = Workload(segments=(count,), decode_steps=0, micro_batch=micro_batch)
    with subject.session(subject.shape(micro_batch)) as session:
        session.decode(workload.prompt(subject.model.facts.n_vocab)[0], 0)
        return len(session.export_state(0)), len(session.export_state(0, PARTIAL_STATE))
