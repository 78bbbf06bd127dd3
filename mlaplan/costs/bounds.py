"""What figures of one deployment can never exceed, whatever the hardware."""

from __future__ import annotations

from mlaplan.costs.roofline import Numeric


def tokens_per_s(in_flight: Numeric, step_s: Numeric, tokens_per_step: Numeric = 1.0) -> Numeric:
    """Every sequence in flight yields at most `tokens_per_step` in every step: in_flight a / step. [1/s]"""
    return in_flight * tokens_per_step / step_s


def amdahl_share(part_saved: Numeric, whole_saved: Numeric) -> Numeric:
    """Share of the whole that a part must have been: saved of the whole over saved of the part."""
    return whole_saved / part_saved
