"""Policies for the query chunk of a step, replayed over traces."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan.costs import overlap, policies, traces
from mlaplan.costs.policies import Device, Step
from mlaplan.errors import MlaplanError
from mlaplan.specs.lookup import load_chip, load_model

V2 = load_model("deepseek-v2").attention["mla"]
MIB = 2**20


def device(form: str = "naive", sram_mib: int = 24, chip: str = "k3") -> Device:
    work = overlap.Work(V2, form, 1.0, 1.0, 16, 8)
    return Device(work, overlap.rates(load_chip(chip), 8, form), sram_mib * MIB)


K3 = device()


def test_a_step_by_hand() -> None:
    s = Step(32, 1, 2048, 960e-6, queue_depth=2)
    w = 32 * 2048 * 16 * 2 * (512 * 256 + 320) / (0.65 * 512e12)
    launch = 3e-6 + 3 * 0.15e-6
    assert K3.compute_s(s, 8) == pytest.approx(w)
    # uncut: all of it in a row; in four pieces of 8 sequences: 1 us of latency each
    assert policies.step_s(K3, s, 32) == pytest.approx(960e-6 + launch + w)
    a, b = 1e-6 + 240e-6, launch + w / 4
    assert policies.step_s(K3, s, 8) == pytest.approx(a + b + 3 * max(a, b))


def test_a_tile_over_the_guard_spills() -> None:
    s = Step(1, 1024, 4096, 100e-6)
    small = device(sram_mib=1)
    assert policies.step_s(small, s, 256) > policies.step_s(K3, s, 256)


def test_the_formula_and_its_repaired_bug() -> None:
    s = Step(32, 1, 2048, 1e-3)
    assert policies.formula(device(sram_mib=24))(s, None) in policies.ARTICLE_CHUNKS
    # B Q_c H D 2 with 16 heads: 4 MiB for a chunk of 32, over 0.8 of 4 MiB. The article returns 128 here
    assert policies.formula(device(sram_mib=4))(s, None) == 32


def test_the_formula_follows_a_slow_link_only_upwards() -> None:
    """comm = max(estimate, 0.8 of the last): a faster last step changes nothing."""
    choose = policies.formula(K3, policies.CHUNKS)
    s = Step(8, 1, 2048, 1e-3)
    assert choose(s, 1e-9) == choose(s, None)
    assert choose(s, 1.0) >= choose(s, None)


def test_the_static_threshold() -> None:
    choose = policies.static(K3)
    assert choose(Step(4, 1, 16384, 1e-3), None) == 4
    assert choose(Step(4, 1, 16385, 1e-3), None) == 128


def test_feedback_does_not_flap() -> None:
    """On a steady trace with single slices slower by 30 % the chunk stays; without inertia it may move."""
    steps = traces.synthetic(K3, "steady", seed=3)
    assert policies.replay(K3, steps, "feedback").changes <= 1
    loose = policies.Feedback(K3, inertia=0.0, smoothing=1.0)
    assert policies.replay(K3, steps, "loose", loose).changes >= policies.replay(K3, steps, "feedback").changes


@pytest.mark.parametrize("kind", traces.KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_feedback_is_the_best_policy_where_there_is_compute_to_hide_behind(kind: str, seed: int) -> None:
    steps = traces.synthetic(K3, kind, seed=seed)
    regret = {name: policies.replay(K3, steps, name).regret for name in policies.POLICIES}
    assert regret["feedback"] < 0.02
    assert regret["static"] > 0.3 and regret["formula"] > 0.3
    wide = policies.replay(K3, steps, "wide", policies.formula(K3, policies.CHUNKS)).regret
    assert regret["feedback"] < wide < regret["formula"]


@pytest.mark.parametrize("kind", traces.KINDS)
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_feedback_bears_a_model_that_is_wrong_by_a_factor_of_two(kind: str, factor: float) -> None:
    r = K3.rates._replace(matrix_flops_per_s=K3.rates.matrix_flops_per_s * factor, switch_s=K3.rates.switch_s * factor)
    believed = Device(K3.work, r, K3.sram_bytes)
    found = policies.replay(K3, traces.synthetic(K3, kind, seed=0), "feedback", policies.Feedback(believed))
    assert found.regret < 0.02


@pytest.mark.parametrize("kind", traces.KINDS)
def test_where_the_link_alone_decides_no_policy_matters(kind: str) -> None:
    d = device("absorbed")
    steps = traces.synthetic(d, kind, seed=1)
    regret = [policies.replay(d, steps, name).regret for name in policies.POLICIES]
    assert max(regret) < 0.03


@given(st.sampled_from(traces.KINDS), st.integers(0, 1000), st.sampled_from(policies.POLICIES))
@settings(max_examples=15, deadline=None)
def test_no_policy_beats_the_best_chunk_of_every_step(kind: str, seed: int, name: str) -> None:
    found = policies.replay(K3, traces.synthetic(K3, kind, 30, seed), name)
    assert found.regret >= 0
    assert all(d.step_s >= d.best_s - 1e-12 for d in found.decisions)
    assert found.total_s >= sum(d.step_s for d in found.decisions) * (1 - 1e-12)


def test_traces_are_seeded() -> None:
    assert traces.synthetic(K3, "noisy", seed=5) == traces.synthetic(K3, "noisy", seed=5)
    assert traces.synthetic(K3, "noisy", seed=5) != traces.synthetic(K3, "noisy", seed=6)


def test_a_trace_from_csv(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("comm_us,batch,q_len,kv_len,queue_depth\n940.5,32,1,2048,3\n\n12,1,64,512,0\n")
    assert traces.read(str(file)) == [
        Step(32, 1, 2048, pytest.approx(940.5e-6), 3),
        Step(1, 64, 512, pytest.approx(12e-6)),
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", ":1: is empty"), ("batch,q_len,kv_len\n1,1,1\n", ":1: missing column 'comm_us'"),
        ("batch,q_len,kv_len,com_us\n", ":1: unknown column 'com_us'; expected batch, q_len, kv_len, comm_us, "
         "queue_depth; did you mean 'comm_us'?"),
        ("batch,q_len,kv_len,comm_us\n", ":1: has a header and no step"),
        ("batch,q_len,kv_len,comm_us\n1,1,1\n", ":2: 3 cells; expected 4"),
        ("batch,q_len,kv_len,comm_us\n0,1,1,1\n", ":2: batch is 0; expected a whole number from 1 to 1,000,"),
        ("batch,q_len,kv_len,comm_us\n1,1.5,1,1\n", ":2: q_len is '1.5'; expected a whole number from 1 to 1,000,"),
        ("batch,q_len,kv_len,comm_us\n1,1,1,nan\n", ":2: comm_us is nan; expected microseconds from 0 to 1,000,"),
        ("batch,batch,q_len,kv_len,comm_us\n1,1,1,1,1\n", ":1: column 'batch' appears twice"),
    ],
)  # fmt: skip
def test_a_bad_trace_is_told_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text(text)
    with pytest.raises(MlaplanError) as caught:
        traces.read(str(file))
    assert str(caught.value).startswith(f"{file}{complaint}")


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MlaplanError, match="cannot be read"):
        traces.read(str(tmp_path / "no.csv"))
