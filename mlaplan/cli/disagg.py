"""`recommend --disagg`: prefill and decode apart, beside the plan that keeps them together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from mlaplan.errors import EXIT_FINDINGS, EXIT_OK, MlaplanError

if TYPE_CHECKING:
    from mlaplan.cli.options import Disagg, KvOverlap
    from mlaplan.cli.questions import Subject
    from mlaplan.engines.connectors import Connector
    from mlaplan.fleet.decision import Decision
    from mlaplan.fleet.split import Ask, Sends
    from mlaplan.report.plan_text import Answer
    from mlaplan.rules.rule import Question
    from mlaplan.workload import Overrides


@dataclass(frozen=True, slots=True)
class Apart:
    """What the options of the split ask for."""

    mode: Disagg
    prefill_chip: str | None
    decode_chip: str | None
    link: str | None
    overlap: KvOverlap | None
    connector: str | None = None

    @property
    def wanted(self) -> bool:
        return self.mode.value != "off"

    def check(self, devices: int, objective: str) -> None:
        """Refuses options that do not go together, before anything is searched."""
        given = {
            "--prefill-chip": self.prefill_chip,
            "--decode-chip": self.decode_chip,
            "--kv-link": self.link,
            "--kv-overlap": self.overlap,
            "--kv-connector": self.connector,
        }
        lone = [flag for flag, value in given.items() if value is not None]
        if lone and not self.wanted:
            raise MlaplanError(f"{lone[0]} goes with --disagg on or auto")
        if self.wanted and objective != "throughput":
            raise MlaplanError(f"--disagg {self.mode.value} sizes pools by throughput, not by --objective {objective}")
        if self.wanted and devices < 2:
            raise MlaplanError(f"--disagg {self.mode.value}: two pools need --devices 2 or more, not {devices}")

    def link_rate(self) -> float | None:
        """The user's own rate of a chip's link. [B/s]"""
        from mlaplan.cli import questions

        rate = questions.optional("--kv-link", self.link, "bytes/s")
        if rate == 0:
            raise MlaplanError("--kv-link: above 0 bytes per second")
        return rate

    def ask(self, devices: int, prefill: Question, decode: Question) -> Ask:
        """How the pools are joined: by the connector of their engine, if one is known."""
        from mlaplan.fleet.split import Ask

        c = self._connector(prefill, decode)
        sends = c.sends if c is not None else "layers"
        if self.overlap is not None:
            sends = "layers" if self.overlap.value == "layer" else "after"
        return Ask(devices, cast("Sends", sends), self.link_rate(), c)

    def _connector(self, prefill: Question, decode: Question) -> Connector | None:
        from mlaplan.engines.connectors import chips_told, connector, connectors

        labels = [q.profile.label for q in (prefill, decode)]
        if labels[0] != labels[1]:
            raise MlaplanError(f"{labels[0]} and {labels[1]} hand no cache to each other; --engine generic prices them")
        engine, chip = f"{decode.profile.name}@{decode.profile.version}", decode.setting.chip
        if decode.profile.name == "generic" and self.connector is not None:
            raise MlaplanError("--kv-connector goes with --engine or --emit: connectors belong to an engine")
        c = connector(engine, chip.efficiency_class, self.connector)
        if c is None:
            return None
        layers = self.overlap is not None and self.overlap.value == "layer"
        if layers and self.connector is None:
            c = next((one for one in connectors(engine, chip.efficiency_class) if one.sends == "layers"), c)
        if layers and c.sends != "layers":
            when = "chunk by chunk" if c.sends == "chunks" else "after the prompt is computed"
            raise MlaplanError(f"--kv-overlap layer: {c.label} sends {when}")
        if (problem := chips_told(c, prefill.setting.chip, chip)) is not None:
            raise MlaplanError(f"{problem}; --engine generic prices them")
        return c


def decide(a: Answer, subject: Subject, apart: Apart, given: Overrides, pins: dict[str, Any]) -> Decision:
    """Both ways on the same chips. Degrees that are pinned hold for the decode pool, dtypes and blocks for both."""
    from mlaplan.cli import questions
    from mlaplan.fleet.crossover import Both
    from mlaplan.fleet.decision import decide as run

    def on(chip: str | None) -> Any:
        if chip is None:
            return a.q
        other = questions.subject(subject.given_model, chip, subject.engine, subject.settings)
        return questions.asked(other, a.q.workload, given, pins)[0]

    degrees = {name: value for name, value in pins.items() if name not in ("replicas", "batch")}
    prefill_q, decode_q = on(apart.prefill_chip), on(apart.decode_chip)
    ask = apart.ask(a.devices, prefill_q, decode_q)
    both = Both(a.q, prefill_q, decode_q, ask, pins, degrees, given.tokens_per_step)
    return run(a.found, both, given, apart.mode.value)


def exit_code(a: Answer, d: Decision) -> int:
    """Findings where what was asked for has no plan."""
    together = bool(a.found.plans) and d.mode == "auto"
    return EXIT_OK if together or d.split is not None else EXIT_FINDINGS


def rendered(a: Answer, d: Decision, given: Overrides, how: str) -> str:
    """The answer with both ways, the better first."""
    from mlaplan.report import plan_markdown, plan_text, recommend_data, split_data, split_text, tables

    if how == "json":
        return tables.as_json({**recommend_data.document(a, given), "disagg": split_data.document(d)})
    if how == "csv":
        return tables.as_csv(split_data.rows(a, d))
    if how == "md":
        parts = [plan_markdown.markdown(replace(a, launch=None) if d.wins == "apart" else a), split_text.markdown(d)]
        if a.launch is not None and d.wins == "apart":
            parts.append(f"```sh\n{plan_text.launch(a.launch)}\n```")
        return "\n\n".join(parts)
    if d.wins == "apart":
        parts = [plan_text.asked(a), split_text.section(d)]
        if a.launch is not None:
            parts.append(plan_text.launch(a.launch))
        if a.found.plans:
            parts.append(f"Together, the best of {d.ask.devices} chips:\n{plan_text.ranked(a)}")
        return "\n\n".join(parts)
    return f"{plan_text.report(a)}\n\n{split_text.section(d)}"
