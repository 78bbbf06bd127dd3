"""The linter's rules, in the order of their codes."""

from __future__ import annotations

from functools import lru_cache

from mlaplan.errors import UnknownName
from mlaplan.lint.rule import LintRule


@lru_cache(maxsize=1)
def lint_rules() -> tuple[LintRule, ...]:
    """Every rule that `check` may report."""
    from mlaplan.lint.rules.ascend import ASCEND
    from mlaplan.lint.rules.capacity import CAPACITY
    from mlaplan.lint.rules.consistency import CONSISTENCY
    from mlaplan.lint.rules.devices import DEVICES
    from mlaplan.lint.rules.experts import EXPERTS
    from mlaplan.lint.rules.flags import FLAGS
    from mlaplan.lint.rules.kernels import KERNELS
    from mlaplan.lint.rules.performance import PERFORMANCE
    from mlaplan.lint.rules.planner import PLANNER
    from mlaplan.lint.rules.reading import READING
    from mlaplan.lint.rules.scheduler import SCHEDULER
    from mlaplan.lint.rules.trtllm import TRTLLM

    groups = (READING, PLANNER, CAPACITY, FLAGS, KERNELS, EXPERTS, SCHEDULER, DEVICES, PERFORMANCE, CONSISTENCY,
              TRTLLM, ASCEND)  # fmt: skip
    return tuple(sorted((rule for group in groups for rule in group), key=lambda rule: rule.code))


def rule_named(name: str) -> LintRule:
    """The rule of a code or slug."""
    wanted = name.strip().lower()
    for rule in lint_rules():
        if wanted in (rule.code.lower(), rule.slug):
            return rule
    raise UnknownName("rule", name, [rule.code for rule in lint_rules()])


def selected(pattern: str) -> frozenset[str]:
    """Codes that a code, a slug or the beginning of a code stands for: MLA4 is all of MLA4xx."""
    wanted = pattern.strip().lower()
    found = frozenset(
        rule.code for rule in lint_rules()
        if wanted == rule.slug or (wanted.startswith("mla") and rule.code.lower().startswith(wanted))
    )  # fmt: skip
    if not found:
        raise UnknownName("rule", pattern, [rule.code for rule in lint_rules()] + [rule.slug for rule in lint_rules()])
    return found
