"""Rounding of separate keys and values: nothing for exact formats, more for coarser ones."""

from __future__ import annotations

import numpy as np
import pytest

from mlaplan.kernel import cache_error


def test_attention_of_one_token_is_its_value() -> None:
    keys, values = np.ones((1, 1, 4)), np.array([[[1.0, -2.0, 3.0, 0.5]]])
    assert cache_error._attention(np.ones((1, 4)), keys, values).tolist() == values[0].tolist()


def test_two_tokens_by_hand() -> None:
    """Logits ln 3 and 0: weights 3/4 and 1/4."""
    q, keys = np.array([[np.log(3.0)]]), np.array([[[1.0], [0.0]]])
    assert cache_error._attention(q, keys, np.array([[[4.0], [8.0]]])) == pytest.approx(np.array([[5.0]]))


def test_coarser_formats_err_more() -> None:
    found = {
        e.cache_format: e.relative for e in cache_error.grouped_cache_errors(128, [512], ["bf16", "int8", "fp8_ds_mla"])
    }
    assert 1e-4 < found["bf16"] < found["int8"] < found["fp8_ds_mla"] < 0.2
