"""What a state weighs, told three ways: by the header's arithmetic, by the cache tensors in the graph, and by an export."""

from __future__ import annotations

import math

from agent.engine.dataflow import analyse
from agent.engine.session import PARTIAL_STATE
from agent.header.state_size import kv_page_bytes, recurrent_bytes
from agent.lanes.result import Findings
from agent.lanes.subject import Subject
from agent.lanes.workload import Workload

# a cell of an exported KV cache holds its position, the number of its sequences and one sequence id (llama-kv-cache.cpp)
_CELL_BYTES = 12
_MOST_CACHES = 3  # whole context, sliding window, indexer
_FEW, _MORE = 8, 16  # tokens; no window of a model is smaller


def check_state_bytes(subject: Subject, micro_batch: int, findings: Findings) -> None:
    """Export after a few and after some more tokens; recurrent bytes must be the predicted ones, and so must the growth."""
    exports = {count: _export(subject, micro_batch, count) for count in (_FEW, _MORE)}
    total, partial = exports[_MORE]
    findings.measurements |= {"state_bytes": total, "state_tokens": _MORE}
    if any(kind.recurrent for kind in subject.contract.state):
        predicted = recurrent_bytes(subject.header)
        findings.expect(partial == predicted, f"{partial} recurrent bytes exported, the header predicts {predicted}")
        findings.measurements["recurrent_bytes"] = partial
    _check_growth(subject, micro_batch, total - exports[_FEW][0], findings)


def _check_growth(subject: Subject, micro_batch: int, growth: int, findings: Findings) -> None:
    tokens = _MORE - _FEW
    rows, indexers = _row_bytes(subject, micro_batch)
    findings.measurements["kv_bytes_a_token"] = rows
    if not rows:
        findings.expect(growth == 0, f"a model without attention exports {growth} bytes more for {tokens} tokens")
        return
    if not indexers:
        predicted = kv_page_bytes(subject.header, 1)
        findings.expect(predicted == rows, f"the header predicts {predicted} KV bytes a token, the graph keeps {rows}")
    overhead = growth - rows * tokens
    if indexers:
        # an indexer may keep pooled blocks besides its keys, which no header tells
        findings.expect(
            overhead >= _CELL_BYTES * tokens,
            f"{tokens} tokens more export {growth} bytes more, less than their rows of {rows * tokens} and their cells",
        )
        return
    cells = range(_CELL_BYTES * tokens, (_MOST_CACHES + 1) * _CELL_BYTES * tokens, _CELL_BYTES * tokens)
    findings.expect(
        overhead in cells,
        f"{tokens} tokens more export {growth} bytes more; their KV rows alone are {rows * tokens}, and their cells "
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
