"""A partial result of attention, (output, log-sum-exp), and the exact merge of several.

The contract, which the types enforce:
  * the log-sum-exp is natural:  lse = ln sum_s exp(logit_s)
  * a row that saw no key is (0, -inf)
  * the output is normalised: out = sum_s exp(logit_s - lse) v_s

Serving kernels differ: FlashInfer returns base 2 on some of its backends, FlashMLA and FlashAttention-2 mark
an empty row by +inf, others leave its output uninitialised. `from_kernel` converts; `Partial` refuses what it
can see to be wrong; `check_bounds` finds what only the logits can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np


class ConventionError(ValueError):
    """Numbers that break the (out, lse) contract, or were read under the wrong convention."""


@dataclass(frozen=True, slots=True)
class Partial:
    """out [..., d], lse [...]."""

    out: np.ndarray
    lse: np.ndarray

    def __post_init__(self) -> None:
        if self.out.shape[:-1] != self.lse.shape:
            raise ConventionError(f"out {self.out.shape} and lse {self.lse.shape} do not belong together")
        if np.isnan(self.lse).any():
            raise ConventionError("lse has NaN: a fully masked row was subtracted from itself")
        if np.isposinf(self.lse).any():
            raise ConventionError('lse has +inf: import it with from_kernel(..., empty="+inf")')


def empty(rows: tuple[int, ...], width: int, dtype: np.dtype | type = np.float64) -> Partial:
    """The identity of the merge: (0, -inf) in every row."""
    return Partial(np.zeros((*rows, width), dtype), np.full(rows, -np.inf, dtype))


def from_kernel(out: np.ndarray, lse: np.ndarray, base: str = "e", empty: str = "-inf") -> Partial:
    """Convert another kernel's convention. base "e" or "2"; empty "-inf" or "+inf".

    The output of an empty row becomes 0 whatever it was: kernels that skip such a row leave memory behind.
    """
    if base not in ("e", "2") or empty not in ("-inf", "+inf"):
        raise ConventionError(f'base is "e" or "2" and empty "-inf" or "+inf"; got {base!r} and {empty!r}')
    if empty == "-inf" and np.isposinf(lse).any():
        raise ConventionError('lse has +inf, which empty="-inf" does not allow')
    is_empty = np.isinf(lse)
    natural = np.where(is_empty, -np.inf, lse * np.log(2.0) if base == "2" else lse)
    return Partial(np.where(is_empty[..., None], 0.0, out).astype(out.dtype), natural.astype(lse.dtype))


def check_bounds(partial: Partial, max_logit: np.ndarray, keys: np.ndarray) -> None:
    """Raise where lse cannot be ln of a sum of `keys` exponentials whose largest is exp(max_logit).

        max_logit <= lse <= max_logit + ln(keys),  and  lse = -inf  iff  keys = 0

    A base-2 value is 1.44 times the natural one and leaves this interval for certain once max_logit lies above
    2.3 ln(keys) or below -3.3 ln(keys). A finite lse of a row without keys is always found. max_logit, keys [...].
    """
    none = keys == 0
    if np.any(np.isfinite(partial.lse) & none):
        raise ConventionError("a row without visible keys has a finite lse; expected (0, -inf)")
    if np.any(np.isneginf(partial.lse) & ~none):
        raise ConventionError("a row with visible keys has lse = -inf")
    low = np.where(none, 0.0, max_logit)
    high = low + np.log(np.where(none, 1, keys))
    got = np.where(none, 0.0, partial.lse)
    slack = 1e-4 * (1.0 + np.abs(low))
    if np.any((got < low - slack) | (got > high + slack)):
        worst = int(np.argmax(np.maximum(low - got, got - high)))
        raise ConventionError(
            f"lse {got.flat[worst]:.6g} lies outside [{low.flat[worst]:.6g}, {high.flat[worst]:.6g}]; "
            f"base 2 instead of e would read {got.flat[worst] * np.log(2.0):.6g}"
        )


def merge(partials: Iterable[Partial]) -> Partial:
    """Combine partials over disjoint keys into the partial over their union.

        lse = ln sum_i exp(lse_i)        out = sum_i exp(lse_i - lse) out_i

    Associative and commutative up to rounding, with `empty` as identity. Rows that are empty everywhere stay
    (0, -inf). A partial of weight zero is left out, not multiplied by zero: NaN * 0 is NaN.
    """
    parts = list(partials)
    if not parts:
        raise ValueError("nothing to merge: how many rows an empty result has is not known")
    top = np.max([p.lse for p in parts], axis=0)
    shift = np.where(np.isneginf(top), 0.0, top).astype(top.dtype)
    out = np.zeros_like(parts[0].out)
    total = np.zeros_like(shift)
    for part in parts:
        weight = np.exp(part.lse - shift)
        total += weight
        out += np.multiply(part.out, weight[..., None], out=np.zeros_like(out), where=weight[..., None] > 0)
    out /= np.where(total == 0, 1, total)[..., None]
    return Partial(out, log_sum(total, shift))


def merge_in_order(partials: Mapping[int, Partial]) -> Partial:
    """Merge by ascending slice id: bitwise the same result however the slices arrived."""
    return merge(partials[slice_id] for slice_id in sorted(partials))


def log_sum(total: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """shift + ln(total), -inf where total is 0, without a warning."""
    return shift + np.log(total, out=np.full_like(total, -np.inf), where=total > 0)
