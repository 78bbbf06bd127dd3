"""Prefill and decode apart, as data: `disagg` of `mlaplan.recommend/1`, `pools` of `mlaplan.plan/1`, rows for csv."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mlaplan.fleet import arrivals
from mlaplan.fleet.split import parts_sent
from mlaplan.report import plan_data

if TYPE_CHECKING:
    from mlaplan.fleet.arrivals import Poisson
    from mlaplan.fleet.decision import Decision
    from mlaplan.fleet.split import Side, Split
    from mlaplan.report.plan_text import Answer


def document(d: Decision) -> dict[str, Any]:
    """Both ways, the winner, and the curve over ISL:OSL."""
    return {
        "mode": d.mode,
        "wins": d.wins,
        "split": split(d),
        "crossover_isl_per_osl": d.crossings,
        "curve": [
            {
                "isl_tokens": p.isl,
                "osl_tokens": p.osl,
                "together_tok_s_chip": p.together,
                "apart_tok_s_chip": p.apart,
                "prefill_chips": p.prefill_chips,
                "decode_chips": p.decode_chips,
            }
            for p in d.points
        ],
    }


def split(d: Decision) -> dict[str, Any] | None:
    """The pools and what they serve."""
    s, b = d.split, d.bands
    if s is None or b is None:
        return None
    return {
        "pools": pools(s),
        "transfer": transfer(s),
        "devices": d.ask.devices,
        "idle_devices": d.ask.devices - s.chips,
        "ttft_s": plan_data.interval(b.ttft_s),
        "wait_s": s.wait_s,
        "slot_wait_s": s.slot_wait_s,
        "prefill_s": s.prefill_s,
        "tpot_s": plan_data.interval(b.tpot_s),
        "tok_s_chip": plan_data.interval(b.tok_s_chip),
        "requests_per_s": s.requests_per_s,
        "concurrency": s.in_flight,
        "decode_batch": s.filled,
        "usd_per_mtok": d.usd_per_mtok,
        "arrivals": "even" if s.decode.q.workload.rate is None else "poisson",
        "poisson": poisson(arrivals.poisson(s)),
    }


def pools(s: Split) -> dict[str, Any]:
    """Each pool: its chip, the strategy of all its instances, and how busy it is."""
    return {"prefill": _pool(s.prefill), "decode": _pool(s.decode)}


def _pool(side: Side) -> dict[str, Any]:
    return {
        "chip": side.q.setting.chip.name,
        "instances": side.instances,
        "devices": side.chips,
        "strategy": plan_data.strategy(side.strategy),
        "requests_per_s_of_one": side.rate,
        "utilisation": side.utilisation,
    }


def transfer(s: Split) -> dict[str, Any]:
    """One request's cache between the pools."""
    return {
        **{name: float(value) for name, value in s.transfer._asdict().items()},
        "link": s.link.name,
        "link_bytes_per_s": s.link.bytes_per_s,
        "connector": None if s.connector is None else s.connector.name,
        "sends": s.sends,
        "parts": 0
        if s.sends == "after"
        else parts_sent(
            s.decode.q.setting.model.layer_count, s.decode.q.workload.new_tokens, s.prefill.strategy, s.sends
        ),
        "latency_s": s.link.alpha_s,
        "prefill_s": s.first_s,
        "exposed_s": s.exposed_s,
    }


def poisson(p: Poisson) -> dict[str, Any]:
    """The split with random arrivals; infinite waits are null."""
    return {name: plan_data.finite(float(value)) for name, value in asdict(p).items()}


def rows(a: Answer, d: Decision) -> list[dict[str, Any]]:
    """Flat rows: the best plan together, and one per pool."""
    out = []
    if a.found.plans:
        e = a.found.plans[0]
        assert e.served is not None
        tpot = e.served.tpot_s.value if e.served.tpot_s else None
        out.append(
            _row("together", a.q.setting.chip.name, e.strategy.replicas, e.strategy, e.served.ttft_s.value, tpot,
                 e.served.tok_s_chip.value)
        )  # fmt: skip
    if d.split is not None:
        s = d.split
        for role, side in (("prefill", s.prefill), ("decode", s.decode)):
            out.append(
                _row(role, side.q.setting.chip.name, side.instances, side.strategy, s.ttft_s, s.tpot_s, s.tok_s_chip)
            )
    return out


def _row(
    role: str, chip: str, instances: int, strategy: Any, ttft: float, tpot: float | None, tok: float
) -> dict[str, Any]:
    head = {"role": role, "chip": chip, "instances": instances, "devices": strategy.devices}
    return {**head, **strategy.to_dict(), "ttft_s": ttft, "tpot_s": tpot, "tok_s_chip": tok}
