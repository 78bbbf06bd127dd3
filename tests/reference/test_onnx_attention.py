"""Agreement of the core with the ONNX Attention operator, whose reference evaluator is numpy too.

MLA decode is its shape with one KV head and values narrower than keys. Its scale attribute is an fp32 that is
applied as a square root to Q and to K; scale 1 with the factor folded into Q keeps fp64 exact.
"""

from __future__ import annotations

import numpy as np
import pytest

from mlaplan.kernel import core
from mlaplan.kernel.tolerance import FP64, difference

MISSING = "the outside checks need the extra `reference`"
onnx = pytest.importorskip("onnx", reason=MISSING)
pytest.importorskip("onnx.reference", reason=MISSING)


def onnx_attention(q: np.ndarray, cache: np.ndarray, d_c: int, scale: float, new: int, causal: bool) -> np.ndarray:
    """q [q_len, heads, width], cache [T, width], whose last `new` rows are those of this step."""
    past = len(cache) - new
    kind = onnx.TensorProto.DOUBLE
    inputs = {
        "Q": np.moveaxis(q * scale, 1, 0)[None],  # [1, heads, q_len, width]
        "K": cache[None, None, past:],
        "V": cache[None, None, past:, :d_c],
        "past_key": cache[None, None, :past],
        "past_value": cache[None, None, :past, :d_c],
    }
    node = onnx.helper.make_node(
        "Attention",
        ["Q", "K", "V", "", "past_key", "past_value"],
        ["Y", "present_key", "present_value"],
        scale=1.0,
        is_causal=int(causal),
    )
    graph = onnx.helper.make_graph(
        [node],
        "mla",
        [onnx.helper.make_tensor_value_info(n, kind, a.shape) for n, a in inputs.items()],
        [onnx.helper.make_tensor_value_info("Y", kind, None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)])
    y = onnx.reference.ReferenceEvaluator(model).run(
        ["Y"], {name: np.ascontiguousarray(array) for name, array in inputs.items()}
    )[0]
    return np.moveaxis(y[0], 0, 1)


@pytest.mark.parametrize(
    ("q_len", "heads", "keys"), [(1, 16, 129), (3, 6, 300), (4, 1, 64), (17, 9, 128), (2, 128, 40)]
)
@pytest.mark.parametrize("std", [1.0, 4.0, 8.0])
def test_core_against_onnx(q_len, heads, keys, std):
    rng = np.random.default_rng(keys)
    q, cache = rng.standard_normal((q_len, heads, 576)), rng.standard_normal((keys, 576))
    scale = std * 576**-0.5
    at = np.arange(keys - q_len, keys)
    expected = onnx_attention(q, cache, 512, scale, new=q_len, causal=True)
    got = core.absorbed(q, cache, 512, scale, at, np.arange(keys)).out
    assert max(difference(g, e).relative for g, e in zip(got, expected, strict=True)) <= FP64


def test_without_a_mask():
    rng = np.random.default_rng(0)
    q, cache = rng.standard_normal((2, 5, 40)), rng.standard_normal((33, 40))
    expected = onnx_attention(q, cache, 32, 0.3, new=2, causal=False)
    assert difference(core.absorbed(q, cache, 32, 0.3).out, expected).relative <= FP64
