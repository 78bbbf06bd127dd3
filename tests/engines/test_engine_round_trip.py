"""emit and parse are inverses over everything an engine can express."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan.engines import MODULES, EmitRequest, emit, engine_versions, load_profile, parse
from mlaplan.engines.flags import load_flags, read_flags
from mlaplan.engines.launch import arguments
from mlaplan.engines.limits import limits
from mlaplan.errors import MlaplanError

ENGINES = [f"{name}@{version}" for name in MODULES for version in engine_versions(name)]
CARRIED = (
    "model", "tp", "pp", "dp", "ep", "dcp", "dcp_merge", "dcp_interleave", "cp", "kv_layout", "kv_dtype", "block_size",
    "prefill_chunk",
    "two_batch_overlap", "mtp", "batch", "max_model_len", "memory_fraction", "trust_remote_code",
)  # fmt: skip
POWERS = st.sampled_from([1, 2, 4, 8])


def dcp_parts(draw, profile, dcp, mtp, engine):
    """A merge that the engine's command can say, and runs of tokens where it deals them out."""
    if dcp == 1 or load_flags(*engine.split("@")).name("--dcp-comm-backend") is None:
        return {}
    pattern = draw(st.sampled_from([m.pattern for m in profile.parallel.dcp.merges]))
    deals = profile.parallel.dcp.interleave and (not mtp or profile.parallel.dcp.interleave_mtp)
    runs = [1, 1, 16 if deals else 1]
    return {"dcp_merge": pattern, "dcp_interleave": draw(st.sampled_from(runs))}


@st.composite
def requests(draw, engine: str) -> EmitRequest:
    """Requests that nearly always can be expressed."""
    profile = load_profile(engine)
    chip = draw(st.sampled_from([c for c in profile.runs_on if profile.kv_dtypes(c, "mla")]))
    kinds = [a for a in ("mla", "mla_sparse", "gqa") if profile.kv_dtypes(chip, a)]
    attention = draw(st.sampled_from(kinds))
    dtype = draw(st.sampled_from([d for d in profile.kv_dtypes(chip, attention) if d != "int8"]))
    tp = draw(POWERS) if attention != "mla_sparse" or profile.parallel.sparse_tp else 1
    dp, batch = draw(POWERS), draw(st.integers(1, 700))
    if profile.parallel.dp_whole and dp > 1:
        tp = 1
    degrees = st.sampled_from([n for n in (1, 2, 4, 8, 16, 32, 64) if (tp * dp) % n == 0])
    all_or_none = st.sampled_from([1, tp * dp])
    ep = draw(all_or_none if profile.parallel.experts == "all_or_none" else degrees)
    cuts_freely = profile.name != "trtllm"
    pp_layers = draw(st.sampled_from([(), (), (31, 30), (30, 31)])) if cuts_freely else ()
    pp = 2 if pp_layers else draw(st.sampled_from([1, 1, 2]))
    mtp = draw(st.integers(0, 3)) if pp == 1 or profile.parallel.mtp_with_pp else 0
    sharded = (
        tp > 1
        and (not mtp or (profile.parallel.dcp is not None and profile.parallel.dcp.mtp))
        and bool(profile.kv_blocks(chip, attention, dtype, dcp=True))
    )
    dcp = draw(st.sampled_from([d for d in (1, 2, 4, 8) if tp % d == 0])) if sharded else 1
    cp, two_batch = profile.parallel.cp, profile.parallel.two_batch
    spreads = tp > 1 and dcp == 1 and cp is not None and attention in cp.attention and (dp == 1 or cp.with_dp)
    overlaps = two_batch is not None and dp > 1 and ep == tp * dp and pp == dcp == 1 and (not mtp or two_batch.mtp)
    return EmitRequest(
        model=draw(st.sampled_from(["deepseek-ai/DeepSeek-V3", "./my model", "a'b"])),
        chip_class=chip,
        attention=attention,
        tp=tp,
        dp=dp,
        pp=pp,
        pp_layers=pp_layers,
        ep=ep,
        dcp=dcp,
        cp=draw(st.sampled_from([1, tp])) if spreads else 1,
        kv_layout="sequence_sharded" if dcp > 1 else "replicated",
        kv_dtype=dtype,
        block_size=draw(st.sampled_from(profile.kv_blocks(chip, attention, dtype, dcp=dcp > 1))),
        prefill_chunk=draw(st.sampled_from([c for c in (128, 1024, 8192, 16384) if c >= batch])),
        two_batch_overlap=draw(st.sampled_from([0, 1])) if overlaps else 0,
        mtp=mtp,
        batch=batch,
        max_model_len=draw(st.integers(1, 10**6)),
        **dcp_parts(draw, profile, dcp, mtp, engine),
        memory_fraction=draw(st.none() | st.sampled_from([0.9, 0.92, 0.875])),
        chips_per_node=draw(st.sampled_from([4, 8, 16])),
        replicas=draw(st.integers(1, 3)),
        trust_remote_code=draw(st.booleans()),
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_emitted_exists_and_is_read_back(engine):
    table = load_flags(*engine.split("@"))
    emitted = refused = 0

    @settings(max_examples=120, deadline=None)
    @given(requests(engine))
    def check(request: EmitRequest):
        nonlocal emitted, refused
        try:
            texts = emit(engine, request)
        except MlaplanError as error:
            assert all(": " in line for line in str(error).splitlines())
            refused += 1
            return
        emitted += 1
        # every node says the same plan; Ray's workers say none
        for text in (t for t in texts[:3] if not t.splitlines()[-1].startswith("ray start")):
            got = parse(engine, text, attention=request.attention)
            assert {k: got[k] for k in CARRIED} == {k: getattr(request, k) for k in CARRIED}
            assert got["pp_layers"] == request.pp_layers
        # names in full, so that a later flag with the same beginning breaks nothing, and each once
        line = read_flags(table, arguments(table, texts[0])[1])
        assert all(g.spelled in table.spellings for g in line.given)
        assert len(line.given) == len(line.values)

    check()
    assert emitted > 2 * refused


@pytest.mark.parametrize("engine", ENGINES)
def test_limits_of_columns_are_those_of_each_row(engine):
    import numpy as np

    from mlaplan.strategy import NAMES, Strategy, from_row, to_table

    rng = np.random.default_rng(7)
    pick = lambda *values: [values[i] for i in rng.integers(0, len(values), 300)]  # noqa: E731
    columns = {
        "tp": pick(1, 2, 4, 8), "dp": pick(1, 2, 8), "pp": pick(1, 2), "ep": pick(1, 2, 8, 16),
        "dcp": pick(1, 1, 2, 8), "cp": pick(1, 1, 2, 8), "mtp": pick(0, 1), "batch": pick(8, 1000),
        "kv_layout": pick("replicated", "latent_sharded", "sequence_sharded"),
        "kv_dtype": pick("bf16", "fp16", "fp8", "fp8_ds_mla", "int8"), "block_size": pick(1, 16, 64, 128),
        "prefill_chunk": pick(100, 512, 8192), "two_batch_overlap": pick(0, 1),
    }  # fmt: skip
    rows = [Strategy(**{k: v[i] for k, v in columns.items()}) for i in range(300)]
    table = to_table(rows)

    class Columns:
        def __getattr__(self, name: str):
            return table[name]

    profile = load_profile(engine)
    for attention in ("mla", "mla_sparse", "gqa"):
        for chip in ("nvidia-hopper", "amd-cdna3", "ascend"):
            for limit in limits(profile, attention, chip, heads=128):
                mask = np.broadcast_to(limit.breaks(Columns()), len(rows))
                assert mask.tolist() == [bool(limit.breaks(from_row(table, i))) for i in range(len(rows))]
                broken = next((r for r, bad in zip(rows, mask, strict=True) if bad), None)
                if broken is not None:
                    assert limit.text(broken).startswith(limit.part)
    assert set(columns) <= set(NAMES)
