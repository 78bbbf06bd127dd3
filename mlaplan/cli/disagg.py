"""`recommend --disagg`: prefill and decode apart, beside the plan that keeps them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlaplan.errors import EXIT_FINDINGS, EXIT_OK, MlaplanError

if TYPE_CHECKING:
    from mlaplan.cli.options import Disagg, KvOverlap
    from mlaplan.cli.questions import Subject
    from mlaplan.fleet.decision import Decision
    from mlaplan.fleet.split import Ask
    from mlaplan.report.plan_text import Answer
    from mlaplan.workload import Overrides


@dataclass(frozen=True, slots=True)
class Apart:
    """What the options of the split ask for."""

    mode: Disagg
    prefill_chip: str | None
    decode_chip: str | None
    link: str | None
    overlap: KvOverlap | None

    @property
    def wanted(self) -> bool:
        return self.mode.value != "off"

    def check(self, emit: str | None, devices: int, objective: str) -> None:
        """Refuses options that do not go together, before anything is searched."""
        given = {
            "--prefill-chip": self.prefill_chip,
            "--decode-chip": self.decode_chip,
            "--kv-link": self.link,
            "--kv-overlap": self.overlap,
        }
        lone = [flag for flag, value in given.items() if value is not None]
        if lone and not self.wanted:
            raise MlaplanError(f"{lone[0]} goes with --disagg on or auto")
        if self.wanted and emit is not None:
            raise MlaplanError("--emit writes one engine's command, not two pools': use --disagg off, or --save-plan")
        if self.wanted and objective != "throughput":
            raise MlaplanError(f"--disagg {self.mode.value} sizes pools by throughput, not by --objective {objective}")
        if self.wanted and devices < 2:
            raise MlaplanError(f"--disagg {self.mode.value}: two pools need --devices 2 or more, not {devices}")

    def ask(self, devices: int) -> Ask:
        """How the pools are joined."""
        from mlaplan.cli import questions
        from mlaplan.fleet.split import Ask

        rate = questions.optional("--kv-link", self.link, "bytes/s")
        if rate == 0:
            raise MlaplanError("--kv-link: above 0 bytes per second")
        return Ask(devices, self.overlap is None or self.overlap.value == "layer", rate)


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
    both = Both(a.q, prefill_q, decode_q, apart.ask(a.devices), pins, degrees, given.tokens_per_step)
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
        return f"{plan_markdown.markdown(a)}\n\n{split_text.markdown(d)}"
    if d.wins == "apart":
        parts = [plan_text.asked(a), split_text.section(d)]
        if a.found.plans:
            parts.append(f"Together, the best of {d.ask.devices} chips:\n{plan_text.ranked(a)}")
        return "\n\n".join(parts)
    return f"{plan_text.report(a)}\n\n{split_text.section(d)}"
