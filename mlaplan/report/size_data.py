"""Sizes as data: `mlaplan.size/1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlaplan.report import plan_data

if TYPE_CHECKING:
    from mlaplan.fleet.offered import Offered
    from mlaplan.fleet.operating import Point
    from mlaplan.fleet.size import Nearest
    from mlaplan.fleet.sizing import Answer
    from mlaplan.serving.simulator.load import Lengths

SCHEMA = "mlaplan.size/1"


def row(a: Answer) -> dict[str, Any]:
    """One kind of chip as flat data."""
    s = a.best
    point = a.point
    out: dict[str, Any] = {"chip": a.asked.q.setting.chip.name, "rate_per_s": a.asked.rate, "met": s is not None}
    out |= {"chips": s.chips if s else None, "replicas": s.replicas if s else None}
    out |= {"label": s.instance.strategy.label() if s else None}
    out |= {"ttft_s": _finite(point, "ttft_s"), "tpot_s": _finite(point, "tpot_s")}
    out |= {"hit_share": _finite(point, "hit_share"), "server_chips": s.server if s else None}
    out |= {"server_replicas": s.lost if s else None, "chips_with_spare": s.with_spare.chips if s else None}
    return out | {"usd_per_mtok": s.usd_per_mtok(a.price) if s else None, "simulated": a.asked.simulate}


def _finite(point: Point | None, name: str) -> float | None:
    return None if point is None else plan_data.finite(getattr(point, name))


def load(o: Offered) -> dict[str, Any]:
    """Lengths, arrivals and routing of what is offered; isl and osl beside it are means."""
    trace = o.trace is not None
    return {
        "lengths": None if trace else {name: _lengths(one) for name, one in (("isl", o.isl), ("osl", o.osl))},
        "trace_requests": len(o.trace) if o.trace is not None else None,
        "burstiness": o.burstiness if trace else o.burstiness or 1.0,
        "routing": o.routing.replace("_", "-"),
        "prefix_cache": o.prefix_cache,
    }


def _lengths(one: Lengths) -> dict[str, Any]:
    names = {"value": ("tokens",), "uniform": ("shortest", "longest"), "lognormal": ("mean", "cv")}[one.kind]
    return {"kind": one.kind, **dict(zip(names, (one.a, one.b), strict=False))}


def nearest(n: Nearest) -> dict[str, Any]:
    """The shortest times of a request that meets no other: alone, and with the other limit kept."""
    return {
        name: None if found is None else {"seconds": found[0], "label": found[1].label(), "devices": found[1].devices}
        for name, found in (("ttft", n.ttft), ("tpot", n.tpot), ("tpot_with_ttft_kept", n.with_ttft),
                            ("ttft_with_tpot_kept", n.with_tpot))
    }  # fmt: skip


def document(answers: list[Answer]) -> dict[str, Any]:
    """`mlaplan.size/1`."""
    first = answers[0].asked
    return {
        "schema": SCHEMA,
        "workload": {**plan_data.workload(first.q), **load(first.offered)},
        "limits": {
            name: None if one is None else {"percentile": one.percentile or None, "seconds": one.seconds}
            for name, one in (("ttft", first.ttft), ("tpot", first.tpot))
        },
        "chips": [
            {
                **row(a),
                **plan_data.subject(a.asked.q),
                "strategy": plan_data.strategy(a.best.strategy) if a.best else None,
                "formula_chips": a.formula.chips if a.formula else None,
                "loads": [
                    {
                        "load": x.name, "rate_per_s": x.rate, "replicas": x.replicas, "meets": x.meets,
                        "ttft_s": _finite(x.point, "ttft_s"), "tpot_s": _finite(x.point, "tpot_s"),
                        "queue_grows": x.point.grows if x.point else None,
                        "in_flight": _finite(x.point, "in_flight"), "prompt_share": _finite(x.point, "prompt_share"),
                    }
                    for x in a.loads
                ],
                "rates": [
                    {"rate_per_s": s.rate, "chips": s.chips, "replicas": s.replicas,
                     "label": s.instance.strategy.label(), "usd_per_mtok": s.usd_per_mtok(a.price)} for s in a.rates
                ],
                "nearest": None if a.best else nearest(a.nearest),
                "instances": [
                    {"devices": s.instance.chips, "label": s.instance.strategy.label(),
                     "most_per_s": s.instance.most_per_s} for s in a.options
                ],
            }
            for a in answers
        ],
    }  # fmt: skip
