"""Every rule: its bad example brings its finding, its good one does not, and all that a reader needs is there."""

from __future__ import annotations

import re

import pytest

from mlaplan.errors import UnknownName
from mlaplan.lint.rule import LintRule
from mlaplan.lint.rules import lint_rules, rule_named, selected
from tests.lint.conftest import Lint

RULES = lint_rules()
WITH_EXAMPLES = [rule for rule in RULES if rule.bad]


@pytest.mark.parametrize("rule", WITH_EXAMPLES, ids=lambda rule: rule.name)
def test_the_bad_example_brings_the_finding(rule: LintRule, lint: Lint) -> None:
    found = {one.code: one for one in lint(rule.bad, rule.file)}
    assert rule.code in found, [one.head() for one in found.values()]
    assert found[rule.code].severity == rule.severity


@pytest.mark.parametrize("rule", WITH_EXAMPLES, ids=lambda rule: rule.name)
def test_the_good_example_does_not(rule: LintRule, lint: Lint) -> None:
    found = [one for one in lint(rule.good, rule.file) if one.code == rule.code or one.severity == "error"]
    assert not found, [one.head() for one in found]


def test_codes_and_slugs_are_unique_and_well_formed() -> None:
    for names in ([rule.code for rule in RULES], [rule.slug for rule in RULES]):
        assert len(set(names)) == len(names)
    for rule in RULES:
        assert re.fullmatch(r"MLA\d{3}", rule.code)
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.slug)
        assert rule.severity in ("error", "warning", "info")
        for text in (rule.title, rule.why, rule.fix, rule.source):
            assert text.strip(), rule.name
        assert not rule.title.endswith(".")


def test_codes_do_not_clash_with_the_planner() -> None:
    from mlaplan.rules import all_rules

    planner = {rule.code: rule.slug for rule in all_rules()}
    for rule in RULES:
        assert planner.get(rule.code, rule.slug) == rule.slug, "a code means one thing"


def test_every_rule_of_the_planner_is_applied_or_says_why_not() -> None:
    from mlaplan.report.rules_page import PLANNER_ONLY
    from mlaplan.rules import all_rules

    applied, left = {rule.code for rule in RULES}, {code for code, _, _ in PLANNER_ONLY}
    assert {rule.code for rule in all_rules()} - applied == left
    assert not applied & left


def test_names() -> None:
    assert rule_named("mla503").slug == "block-size-kernel"
    assert rule_named("block-size-kernel").code == "MLA503"
    assert selected("MLA70") == {"MLA701", "MLA702", "MLA703", "MLA704", "MLA705", "MLA706"}
    with pytest.raises(UnknownName, match="unknown rule 'MLA999'"):
        rule_named("MLA999")
    with pytest.raises(UnknownName, match="did you mean 'eager-decode'"):
        selected("eager-decod")


@pytest.mark.parametrize(
    ("chip", "extra", "severity"),
    [
        ("h100-sxm", "", "warning"),  # a fifth slower than TP8 in a pipeline
        ("ascend-910b3", "", "info"),  # as fast as it
        (
            "ascend-910b3",
            ' --speculative-config \'{"method":"mtp","num_speculative_tokens":1}\'',
            None,
        ),  # a fifth faster
    ],
)
def test_tp_across_nodes_is_told_where_another_layout_is_as_fast(
    lint: Lint, chip: str, extra: str, severity: str | None
) -> None:
    found = lint(f"# mlaplan: chip={chip}\nvllm serve deepseek-ai/DeepSeek-V3 -tp 16{extra}\n", "a.sh")
    assert [one.severity for one in found if one.code == "MLA702"] == ([] if severity is None else [severity])
