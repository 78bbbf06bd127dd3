"""The reference attention and the cost model count the same work: FLOP and bytes, operator by operator.

The kernel counts what it really multiplies, reads and sends; the cost model says what a strategy will. One toy
block runs on every layout of its ranks, and each operator of the cost model must equal its counterpart.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mlaplan.costs import gather, mla, step
from mlaplan.costs.engine import from_profile
from mlaplan.costs.machine import Machine
from mlaplan.costs.merge import Merge
from mlaplan.engines.load import load_profile
from mlaplan.kernel import composed
from mlaplan.kernel.case import random_case
from mlaplan.kernel.composed import Layout
from mlaplan.kernel.pipeline_parallel import Layer
from mlaplan.kernel.shapes import Shapes
from mlaplan.kernel.traffic import ALL_TO_ALL, LATENT_SHARDED, SEQUENCE_SHARDED
from mlaplan.specs.lookup import load_chip, load_model

CONTEXT = 63  # with the token of the step 64, so that every rank of a sequence-sharded cache holds as many
TOY = Path(__file__).parent.parent / "fixtures" / "toy-model.yaml"

# operator of the cost model: the products of the kernel that it stands for
PRODUCTS = {
    "q_proj": ["q_b"],
    "kv_a": ["kv_a"],
    "absorb_q": ["q_absorb"],
    "attention_core": ["core", "latent_scores", "latent_values"],
    "absorb_o": ["v_up"],
    "o_proj": ["o_proj"],
}
TRANSFERS = {
    "attention_all_reduce": ["o_proj"],
    "dcp_query_gather": ["query_gather"],
    "dcp_lse_gather": ["lse_gather"],
    "dcp_output_merge": ["output_scatter"],
    "dcp_output_exchange": ["output_exchange", "lse_exchange"],  # one message of both
    "latent_query_exchange": ["latent_query_exchange"],
    "latent_score_all_reduce": ["latent_score_all_reduce"],
    "latent_output_exchange": ["latent_output_exchange"],
}
LAYOUTS = [
    Layout(),
    Layout(tp=2),
    Layout(tp=8),
    Layout(tp=4, kv_layout=SEQUENCE_SHARDED, dcp=4),
    Layout(tp=8, kv_layout=SEQUENCE_SHARDED, dcp=2),
    Layout(tp=4, kv_layout=SEQUENCE_SHARDED, dcp=4, exchange=ALL_TO_ALL),
    Layout(tp=8, kv_layout=SEQUENCE_SHARDED, dcp=2, interleave=8, exchange=ALL_TO_ALL),
    Layout(tp=8, kv_layout=SEQUENCE_SHARDED, dcp=8, interleave=4),
    Layout(tp=2, kv_layout=LATENT_SHARDED),
    Layout(tp=8, kv_layout=LATENT_SHARDED),
]


def counted(layout: Layout, batch: int):
    """(ledger of all ranks, operators of the cost model for one rank) of the same step."""
    a = load_model(str(TOY)).attention["mla"]
    shapes = Shapes(256, a.heads, a.kv_lora_rank, a.qk_nope_head_dim, a.qk_rope_head_dim, a.v_head_dim, None)
    case = random_case(shapes, CONTEXT, batch=1, q_len=1)
    setting, ledger = case.counted()
    # equal lengths, as the cost model has them
    x, caches = np.repeat(case.x, batch, axis=0), case.caches * batch
    composed.attention(x, caches, case.weights, setting, layout)
    return ledger, operators(layout, batch)


def operators(layout: Layout, batch: int):
    chip, model = load_chip("h200-sxm"), load_model(str(TOY))
    merge = Merge(pattern="a2a" if layout.exchange == ALL_TO_ALL else "ag_rs", interleave=layout.interleave)
    engine = from_profile(load_profile("generic"), chip, "mla")._replace(merge=merge)
    machine = Machine(chip, model, engine, "bf16", "bf16")
    shape = mla.DecodeShape(batch, 1, CONTEXT + 1, layout.tp, layout.dcp, layout.kv_layout.replace("-", "_"))
    return {op.name: op for op in mla.decode_ops(machine, model.attention["mla"], shape)}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS, ids=Layout.text)
def test_flops_are_those_that_the_kernel_counts(layout, batch):
    ledger, ops = counted(layout, batch)
    for name, products in PRODUCTS.items():
        assert float(ops[name].flops) * layout.tp == sum(ledger.flops[p] for p in products), name


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS, ids=Layout.text)
def test_sent_bytes_are_those_that_the_kernel_counts(layout, batch):
    ledger, ops = counted(layout, batch)
    for name, transfers in TRANSFERS.items():
        charged = float(ops[name].link_bytes) if name in ops else 0.0
        # each context group inside the TP ranks records its own transfer
        groups = layout.tp // layout.dcp if name.startswith("dcp_") else 1
        sent = sum(ledger.sent_bytes(transfer) for transfer in transfers)
        assert charged == pytest.approx(sent / groups, rel=1e-12), name
    names = {t.name for t in ledger.transfers}
    assert names <= {name for one in TRANSFERS.values() for name in one}, "a transfer that nothing is charged for"


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS, ids=Layout.text)
def test_the_core_reads_and_writes_what_is_charged(layout, batch):
    """Cache once for all heads, queries in, latent outputs out, two bytes each, over all ranks.

    Latent-sharded: the latent twice, and scores out and in at four bytes each.
    """
    ledger, ops = counted(layout, batch)
    names = PRODUCTS["attention_core"]
    elements = sum(ledger.read_elements[name] + ledger.written_elements[name] for name in names)
    scores = 2 * ledger.written_elements["latent_scores"]
    assert float(ops["attention_core"].bytes) * layout.tp == 2 * (elements - scores) + 4 * scores


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("tp", "dcp"), [(2, 2), (8, 8)])
def test_a_merge_by_all_to_all_sends_what_is_charged(tp, dcp, batch):
    ledger, _ = counted(Layout(tp=tp, kv_layout=SEQUENCE_SHARDED, dcp=dcp, exchange=ALL_TO_ALL), batch)
    a = load_model(str(TOY)).attention["mla"]
    block = gather.Block(a, batch, CONTEXT + 1, dcp)
    charged = gather.sequence_sharded(load_chip("h200-sxm"), block, Merge(pattern="a2a"))
    sent = sum(ledger.sent_bytes(name) for name in ("query_gather", "lse_exchange", "output_exchange"))
    assert float(charged.link_bytes) == pytest.approx(sent, rel=1e-12)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("tp", [1, 4])
def test_a_stage_boundary_sends_what_is_charged(tp, batch):
    """The residual stream and the last block's output; each TP rank of the cost model sends its part."""
    shapes = Shapes(256, 8, 64, 32, 16, 32, None)
    case = random_case(shapes, CONTEXT, batch=batch, q_len=1)
    setting, ledger = case.counted()
    layers = [Layer(np.ones(256), case.weights, case.caches) for _ in range(2)]
    composed.step(case.x, layers, setting, Layout(tp=tp, pp=2))
    model = SimpleNamespace(model=SimpleNamespace(hidden_size=256))
    assert float(step.send_bytes(model, {"tp": tp}, batch)) * tp == ledger.sent_bytes("stage_boundary")
