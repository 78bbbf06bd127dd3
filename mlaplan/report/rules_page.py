"""The page docs/rules.md, written from the rules themselves."""

from __future__ import annotations

from collections.abc import Sequence

from mlaplan.engines.load import spelled
from mlaplan.lint.rule import LintRule
from mlaplan.report.rule_text import needs
from mlaplan.report.tables import as_markdown

HEAD = """# Rules of `mlaplan check`

Written by `mlaplan rules --format md`; a test holds that it is current.

An error stops the server or loses what was asked for; a warning costs time, memory or a surprise; info says what
could not be sure. A finding that holds in some of the engine versions that may be deployed is info and names them.
Findings are turned off by `--ignore CODE`, or on a line by `# mlaplan: ignore[CODE]`. What was learnt about engines was
read in their source at the versions of `mlaplan/engines/profiles`; versions between two of them are checked against
both.
"""

# Reports that no rule can find in a configuration, and what to make of them
NOTES = (
    ("vllm-project/vllm-ascend issue 1127", "DeepSeek-R1 in W8A8 on 16 devices of 64 GB runs out of memory",
     "weights take 39 GiB of each, which fits: what it ran out of depends on activations that no flag states. Leave "
     "room with a lower memory fraction and fewer batched tokens"),
    ("vllm-project/vllm issue 28228", "hybrid models: the logged number of KV tokens is several times too low",
     "the configuration is right and the log wrong: Kimi-Linear keeps 8,064 bytes a token in its 7 MLA layers of 27"),
    ("NVIDIA/Model-Optimizer issue 763", "V3.2 in NVFP4 on H200 with an fp8 cache",
     "take a bf16 cache there; the engine and its flags are not part of the report, and newer kernels read fp8"),
    ("vllm-project/vllm-ascend issue 15467; vllm-project/vllm pull 12755", "a draft layer takes about 1 GiB more",
     "the capacity rules count its weights and its layer of the cache"),
    ("vllm-project/vllm issues 44376, 51041, 51163", "KV transfer checks use multi-head dimensions",
     "no flag decides it, the connector's own check is wrong: an MLA cache is 576 wide"),
)  # fmt: skip

# Rules of the planner that are not applied to deployments, and why
PLANNER_ONLY = (
    ("MLA110", "kv-dtype-absent", "a kernel may convert what it reads, so the chip's dtypes alone decide nothing for a "
     "deployment: MLA502 asks the engine's kernels"),
    ("MLA111", "latent-per-rank", "no flag of a known engine asks for a latent-sharded cache"),
)  # fmt: skip


def page(rules: Sequence[LintRule]) -> str:
    """The whole page."""
    rows = [(f"[{rule.code}](#{rule.code.lower()}-{rule.slug})", rule.severity, rule.title) for rule in rules]
    parts = [HEAD, as_markdown(("code", "severity", "what"), rows)]
    parts += [_section(rule) for rule in rules]
    parts.append("## Reports that no configuration shows\n")
    parts.append(as_markdown(("report", "what", "right answer"), NOTES))
    parts.append("\n## Rules of the planner that are not applied here\n")
    parts.append(as_markdown(("code", "slug", "why"), PLANNER_ONLY))
    return "\n".join(parts) + "\n"


def _section(rule: LintRule) -> str:
    lines = [
        f"\n## {rule.code} {rule.slug}\n",
        f"{_capital(rule.title)}. {_capital(rule.why)}\n",
        f"**Fix.** {rule.fix}\n",
    ]
    for label, example in (("Bad", rule.bad), ("Good", rule.good)):
        if example:
            kind = "json" if rule.file.endswith(".json") else "yaml" if rule.file.endswith(".yaml") else "sh"
            lines.append(f"{label}:\n\n```{kind}\n{example.rstrip()}\n```\n")
    engines = f" Engines: {', '.join(map(spelled, rule.engines))}." if rule.engines else ""
    lines.append(
        f"{_capital(rule.severity)}. Versions: {rule.versions}.{engines} Needs {needs(rule)}. Source: {rule.source}.\n"
    )
    return "\n".join(lines)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
