"""Servers of a split deployment: their part goes into the command and comes back, and what cannot be joined is told."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlaplan.engines import EmitRequest, emit, engine_versions, parse
from mlaplan.engines import connectors as joins
from mlaplan.engines.handover import ROUTER_PORT, paired, router, router_note
from mlaplan.engines.request import Degrees, Handover
from mlaplan.errors import MlaplanError
from mlaplan.specs.lookup import load_chip
from mlaplan.strategy import Strategy
from tests.engines.test_engine_round_trip import requests

ENGINES = [f"{n}@{v}" for n in ("vllm", "sglang", "vllm_ascend") for v in engine_versions(n)]
CLASSES = ("nvidia-hopper", "nvidia-blackwell", "amd-cdna3", "ascend")
DEGREES = st.sampled_from([1, 2, 4, 8, 16])


def all_connectors() -> list[joins.Connector]:
    found = {c: None for engine, kind in product(ENGINES, CLASSES) for c in joins.connectors(engine, kind)}
    return list(found)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_part_is_emitted_and_read_back(engine: str) -> None:
    seen = set()

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(requests(engine), st.sampled_from(["prefill", "decode"]), st.data(), DEGREES, DEGREES)
    def check(request: EmitRequest, role: str, data: st.DataObject, dp: int, tp: int) -> None:
        found = joins.connectors(engine, request.chip_class)
        if not found:
            return
        name = data.draw(st.sampled_from([c.name for c in found]))
        other = Degrees(dp, tp)
        sizes = (request.degrees, other) if role == "prefill" else (other, request.degrees)
        part = Handover(role, name, *sizes)
        try:
            texts = emit(engine, replace(request, handover=part))
        except MlaplanError:
            return
        for text in (t for t in texts if not t.splitlines()[-1].startswith("ray start")):
            back = parse(engine, text, attention=request.attention)["handover"]
            assert (back.role, back.connector) == (role, name)
            if engine.startswith("vllm_ascend"):
                assert (back.prefill, back.decode) == sizes
            seen.add((role, name))
        for text in emit(engine, request)[:1]:
            assert parse(engine, text, attention=request.attention)["handover"] is None

    check()
    assert {role for role, _ in seen} == {"prefill", "decode"}


def test_the_first_sglang_is_told_the_other_pool() -> None:
    request = EmitRequest(model="m", chip_class="nvidia-hopper", tp=4, dp=2, ep=8)
    part = Handover("prefill", "mooncake", request.degrees, Degrees(dp=4, tp=2))
    (old,), (new,) = (emit(f"sglang@{v}", replace(request, handover=part)) for v in ("0.5.5", "0.5.23"))
    assert "--disaggregation-decode-tp 8" in old and "--disaggregation-decode-dp 4" in old
    assert "--disaggregation-decode-tp" not in new


@pytest.mark.parametrize(("host", "ports"), [(8, ("30000", "30100")), (16, ("36000", "36100"))])
def test_ports_of_mooncake_are_above_its_own(host: int, ports: tuple[str, str]) -> None:
    one = EmitRequest(model="m", chip_class="ascend", tp=8, block_size=128, chips_per_node=host)
    pair = paired("vllm_ascend", None, one, one, None)
    found = [parse("vllm_ascend", emit("vllm_ascend", r)[0])["flags"]["--kv-transfer-config"]["kv_port"] for r in pair]
    assert tuple(found) == ports


def test_a_pipeline_that_prefills_is_told_to_the_pool_that_decodes() -> None:
    p = EmitRequest(model="m", chip_class="ascend", tp=4, pp=2, pp_layers=(31, 30), block_size=128)
    d = replace(p, pp=1, pp_layers=())
    pair = paired("vllm_ascend", "mooncake", p, d, None)
    config = parse("vllm_ascend", emit("vllm_ascend", pair[1])[0])["flags"]["--kv-transfer-config"]
    assert config["kv_connector_extra_config"]["prefill"] == {
        "dp_size": 1, "tp_size": 4, "pp_size": 2, "pp_layer_partition": "31,30",
    }  # fmt: skip
    assert config["kv_role"] == "kv_consumer"


REFUSED = [
    ("vllm", None, {"pp": 2}, {}, "takes no pipeline in the prefill pool, not --pp 2"),
    ("vllm", None, {}, {"pp": 2}, "takes no pipeline in the decode pool"),
    ("sglang", None, {"pp": 2}, {"pp": 2}, "takes no pipeline in the decode pool"),
    ("vllm@0.11.0", None, {"tp": 8}, {"tp": 4}, "wants the TP degree that decodes to be a multiple of the other"),
    ("vllm", None, {"tp": 16}, {"tp": 8}, "up to the 8 key-value heads only"),
    ("vllm", "mooncake", {"tp": 4}, {"tp": 8}, "joins equal TP degrees only: TP 4 prefills, TP 8 decodes"),
    ("vllm", None, {"mtp": 1}, {}, "drafts need the draft layer in both pools"),
    ("vllm", None, {"block_size": 64}, {"block_size": 128}, "blocks of 64 and 128 tokens are not alike"),
    ("vllm", None, {"dcp": 2, "kv_layout": "sequence_sharded", "tp": 2}, {"tp": 2}, "context parallelism divides"),
    ("vllm", "ascend", {}, {}, "unknown connector of vllm"),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "name", "p", "d", "said"), REFUSED)
def test_what_cannot_be_joined_is_told(engine: str, name: str | None, p: dict, d: dict, said: str) -> None:
    one = EmitRequest(model="m", chip_class="nvidia-hopper", tp=8)
    with pytest.raises(MlaplanError, match=said):
        paired(engine, name, replace(one, **p), replace(one, **d), 8)


@given(
    st.sampled_from(all_connectors()), st.lists(st.tuples(DEGREES, DEGREES, DEGREES, DEGREES), min_size=1, max_size=9)
)
def test_columns_and_single_plans_agree(c: joins.Connector, degrees: list[tuple[int, int, int, int]]) -> None:
    """The mask that a search uses is what an emitter tells."""
    single = [(Strategy(tp=a, pp=b), Strategy(tp=e, pp=f)) for a, b, e, f in degrees]

    class Columns:
        def __init__(self, plans: list[Strategy]) -> None:
            for name in ("tp", "pp", "dcp", "cp", "mtp", "block_size"):
                setattr(self, name, np.array([getattr(s, name) for s in plans]))
            self.kv_dtype = np.array([0 for _ in plans])

    p, d = (Columns([pair[i] for pair in single]) for i in (0, 1))
    broken = np.zeros(len(single), dtype=bool)
    for limit in joins.pair_limits(c, 8):
        broken |= limit.breaks(p, d)
    assert broken.tolist() == [bool(joins.told(c, *pair, 8)) for pair in single]


@pytest.mark.parametrize(
    ("engine", "prefill", "decode", "said"),
    [
        ("vllm", "h100-sxm", "h200-sxm", None),
        ("vllm", "h100-sxm", "mi300x", "joins chips of one maker"),
        ("vllm_ascend", "ascend-910b3", "ascend-910b4", None),
        ("vllm_ascend", "ascend-910b3", "ascend-910c-die", "joins chips of one generation"),
    ],
)
def test_chips_that_hand_over_to_each_other(engine: str, prefill: str, decode: str, said: str | None) -> None:
    c = joins.connector(engine, load_chip(decode).efficiency_class)
    assert c is not None
    found = joins.chips_told(c, load_chip(prefill), load_chip(decode))
    assert found is None if said is None else said in (found or "")


@pytest.mark.parametrize("c", all_connectors(), ids=lambda c: f"{c.engine}@{c.version}-{c.name}")
def test_every_router_knows_every_server(c: joins.Connector) -> None:
    words = router(c, ["p1", "p2"], ["d1"], 8000)
    text = " ".join(words)
    assert all(f"{name}:8000" in text or f" {name} " in f" {text} " for name in ("p1", "p2", "d1"))
    assert words[-1] == str(ROUTER_PORT) or f"--port {ROUTER_PORT}" in text
    assert c.engine in ("sglang",) or c.version in router_note(c)
    assert c.source and c.sends in ("after", "chunks", "layers") and c.tp in joins.TP_WORDS
