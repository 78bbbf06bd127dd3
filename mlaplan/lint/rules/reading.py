"""Findings about the reading itself: what could not be read, what is missing, what the comments got wrong."""

from __future__ import annotations

from mlaplan.lint.rule import LintRule

UNREADABLE = LintRule(
    "MLA001", "invalid-file", "error", "the file is no valid YAML, spec or plan",
    "Nothing in it can be checked, and what reads it next will refuse it too.",
    "Correct the line named.", "", "", "the formats themselves",
)  # fmt: skip

NOT_CHECKED = LintRule(
    "MLA002", "not-checked", "info", "a value is not known here, so the rules on it did not run",
    "Variables without a literal value and templates are filled in later. They are never guessed.",
    "Give a literal, `${NAME:-literal}`, or check the rendered file.",
    "vllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size $TP\n",
    "TP=8\nvllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size $TP\n",
    "shell word expansion",
)  # fmt: skip

UNUSED_IGNORE = LintRule(
    "MLA003", "unused-ignore", "warning", "an ignore comment ignores nothing",
    "It hides the next real finding on its line, or its code is misspelt.",
    "Remove it.",
    "# mlaplan: ignore[MLA701]\nvllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size 8\n",
    "vllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size 8\n",
    "this linter",
)  # fmt: skip

CONTEXT = LintRule(
    "MLA004", "missing-context", "info", "the chip, the model or the version is not known, so some rules did not run",
    "Capacity needs model and chip, kernels need the chip, flags depend on the engine's version.",
    "Say it: --chip, --model, --engine-version, or a comment `# mlaplan: chip=h200-sxm model=deepseek-v3`.",
    "vllm serve some/unknown-model --tensor-parallel-size 8\n",
    "# mlaplan: engine=vllm@0.33.0 chip=h200-sxm model=deepseek-v3\n"
    "vllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size 8\n",
    "this linter",
)  # fmt: skip

BAD_COMMENT = LintRule(
    "MLA005", "odd-comment", "warning", "a comment for mlaplan cannot be used",
    "It looks as if it said something, and has no effect.",
    "Write `# mlaplan: engine=vllm@0.33.0 chip=... devices=... model=...` or `# mlaplan: ignore[CODE]`.",
    "# mlaplan: chip=h200-smx\nvllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size 8\n",
    "# mlaplan: chip=h200-sxm\nvllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size 8\n",
    "this linter",
)  # fmt: skip

STRAY = LintRule(
    "MLA006", "stray-flags", "error", "flags stand as a command of their own",
    "The line before does not end in a backslash (or has a blank after it), so the server starts without these flags "
    "and the shell then fails to run them. In folded YAML a more indented line keeps its line break.",
    "End the line above with `\\`, or give the lines of a folded text the same indent.",
    "vllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size 8\n    --max-model-len 8192\n",
    "vllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size 8 \\\n    --max-model-len 8192\n",
    "shell grammar; YAML 1.2, section 8.1.3",
)  # fmt: skip

READING = (UNREADABLE, NOT_CHECKED, UNUSED_IGNORE, CONTEXT, BAD_COMMENT, STRAY)
