"""Whatever a file holds: no traceback, no hang, nothing run, no link followed out of the folder that was given."""
# ruff: noqa: E501

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlaplan.errors import MlaplanError
from mlaplan.lint.deployment import Asked
from mlaplan.lint.finding import Finding
from mlaplan.lint.run import Checker, first_ones
from mlaplan.report import annotations, check_data, check_text
from tests.cli.conftest import Run
from tests.lint.conftest import Lint, report_of

WORDS = [
    "vllm", "serve", "deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3.2", "--tensor-parallel-size", "8", "-tp", "=", "\n",
    "\\\n", "'", '"', "$", "${", "}", "${X:-4}", "$(", ")", "`", "{{", "}}", "<", "<<EOF", "EOF", ";", "&&", "|", "(", "#",
    "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 2}', '{"num_speculative_tokens": "a"}', "[1]",
    "--kv-cache-dtype", "fp8", "--block-size", "-1", "0", "99999999999999999999999", "1e400", "nan", "--max-model-len", "4k",
    "X=", "X=8", "export", "if", "then", "fi", "for", "ARGS=(", "python", "-m", "sglang.launch_server", "--tp", "--dp", "3",
    "--attn-dp-size", "--page-size", "--gpu-memory-utilization", "0.9", "docker", "run", "-e", "vllm/vllm-openai:v0.11.0",
    "# mlaplan: chip=h100-sxm", "# mlaplan: ignore[MLA503]", "# vLLM 0.33.0", "--enforce-eager", "--hf-overrides", "trtllm-serve",
    "--eplb-config.num_redundant_experts", "-dcp", "-O3", "--", "--config", "x.yaml", "\t", "\u00e9", "\U0001f680",
]  # fmt: skip
KEYS = ["apiVersion", "kind", "spec", "containers", "command", "args", "env", "name", "value", "image", "resources", "limits",
        "nvidia.com/gpu", "services", "x", "environment", "tensor-parallel-size", "max-num-seqs", "nodeSelector",
        "kv_cache_config", "dtype", "deploy", "leaderWorkerTemplate", "size", "initContainers", "template"]  # fmt: skip
SCALARS = st.one_of(
    st.sampled_from(WORDS), st.integers(-2, 10**30), st.booleans(), st.none(), st.floats(), st.text(max_size=8)
)
TREES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)),
    max_leaves=25,
)  # fmt: skip
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def checked(text: str | bytes, name: str) -> list[Finding]:
    """Checks, and writes the findings in every format."""
    try:
        report = report_of(text, name, chip="h100-sxm", devices=8)
        report.findings = first_ones(report.findings)
    except MlaplanError as error:
        assert str(error)
        return []
    check_text.text(report), annotations.github(report)
    json.dumps(check_data.data(report), allow_nan=False), json.dumps(annotations.sarif(report), allow_nan=False)
    source = report.sources.get(name)
    for one in report.findings:
        assert one.message
        if source is not None and one.line is not None and one.file == name:
            assert 1 <= one.line <= len(source.lines), one.head()
            assert one.col is None or 1 <= one.col <= len(source.lines[one.line - 1]) + 2, one.head()
    return report.findings


@QUICK
@given(st.lists(st.sampled_from(WORDS), max_size=40))
def test_shell(words: list[str]) -> None:
    checked("vllm serve deepseek-ai/DeepSeek-V3 " + " ".join(words), "a.sh")


@QUICK
@given(st.lists(st.sampled_from(WORDS), max_size=30), st.sampled_from(["sglang.launch_server --model-path", "vllm.entrypoints.openai.api_server --model"]))  # fmt: skip
def test_flags(words: list[str], module: str) -> None:
    checked(f"python -m {module} deepseek-ai/DeepSeek-V3 " + " ".join(words), "a.sh")


NUMBERS = st.integers(1, 40).map(str)
DEGREES = {
    "vllm serve {model}": ("-tp", "-pp", "-dp", "-dcp", "--max-num-seqs", "--max-num-batched-tokens", "--block-size",
                           "--max-model-len", "--prefill-context-parallel-size", "--num-redundant-experts"),
    "python -m sglang.launch_server --model-path {model}": ("--tp", "--pp-size", "--dp", "--attn-dp-size", "--ep-size", "--dcp-size",
                                                            "--page-size", "--chunked-prefill-size", "--max-running-requests", "--nnodes"),
    "trtllm-serve {model}": ("--tp_size", "--pp_size", "--ep_size", "--cp_size", "--cluster_size", "--max_batch_size",
                             "--max_num_tokens", "--max_seq_len"),
}  # fmt: skip
MODELS = st.sampled_from(
    ["deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3.2", "Qwen/Qwen2.5-72B", "zai-org/GLM-4.7-Flash"]
)


@QUICK
@given(
    st.data(),
    st.sampled_from(sorted(DEGREES)),
    MODELS,
    st.sampled_from(["", " --enable-expert-parallel --enable-eplb", " --enable-dp-attention"]),
)
def test_degrees(data: st.DataObject, program: str, model: str, more: str) -> None:
    flags = data.draw(st.dictionaries(st.sampled_from(DEGREES[program]), NUMBERS, max_size=6))
    checked(program.format(model=model) + more + "".join(f" {k} {v}" for k, v in flags.items()) + "\n", "a.sh")


@QUICK
@given(TREES, st.booleans())
def test_manifests(tree: object, pod: bool) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [tree]}} if pod else tree
    checked(json.dumps(body), "a.yaml")


@QUICK
@given(st.lists(st.sampled_from(WORDS), max_size=25))
def test_shell_in_folded_yaml(words: list[str]) -> None:
    script = "vllm serve deepseek-ai/DeepSeek-V3 " + " ".join(words)
    lines = "\n".join("          " + line for line in script.split("\n"))
    for style in ("|", ">-"):
        text = f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - command:\n        - sh\n        - -c\n        - {style}\n{lines}\n"
        checked(text, "a.yaml")


@QUICK
@given(st.binary(max_size=200), st.sampled_from(["a.sh", "a.yaml", "plan.json", "a"]))
def test_bytes(raw: bytes, name: str) -> None:
    checked(b"vllm serve " + raw, name)


@QUICK
@given(st.text(max_size=120))
def test_yaml_text(text: str) -> None:
    checked("apiVersion: v1\nkind: Pod\n" + text, "a.yaml")


ODD = {
    "deep lists": "apiVersion: v1\nkind: Pod\nx: " + "[" * 5000 + "]" * 5000,
    "alias bomb": "apiVersion: v1\nkind: Pod\na: &a [x, x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(9)),
    "alias of itself": "apiVersion: v1\nkind: Pod\na: &a [*a]\n",
    "duplicate keys": "apiVersion: v1\nkind: Pod\nkind: Pod\nspec: {containers: []}\n",
    "tab indent": "apiVersion: v1\nkind: Pod\n\tspec: 1\n",
    "merge key": "apiVersion: v1\nkind: Pod\nx: &x {a: 1}\ny: {<<: *x}\n",
    "huge number": "vllm serve m --tensor-parallel-size " + "9" * 10_000,
    "crlf": "vllm serve m \\\r\n  --tensor-parallel-size 8\r\n",
    "bom": "\ufeffvllm serve m --tensor-parallel-size 8\n",
    "unclosed quote": "vllm serve 'm --x",
    "more experts' ranks than ranks": "trtllm-serve deepseek-ai/DeepSeek-R1 --ep_size 8\n",
    "broken here-document": "cat > o.yaml <<'EOF'\na: true\nb:\n  c d:e\nEOF\ntrtllm-serve m --config o.yaml\n",
    "tags": "apiVersion: v1\nkind: !!python/object/apply:os.system ['touch hacked']\n",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("name", ["a.sh", "a.yaml"])
def test_odd_texts(text: str, name: str) -> None:
    checked(text, name)


def test_crlf_and_bom_keep_positions(lint: Lint) -> None:
    found = lint("\ufeffvllm serve deepseek-ai/DeepSeek-V3 \\\r\n  --block-sise 3\r\n".encode())
    assert [(one.line, one.col) for one in found if one.code == "MLA401"] == [(2, 3)]


MIB = 1 << 20
LARGE = {
    "doubling": "X=abcdefgh\n" + "X=$X$X\n" * 200 + "vllm serve deepseek-ai/DeepSeek-V3 $X\n",
    "words": ("vllm serve deepseek-ai/DeepSeek-V3 " + "--max-num-seqs 8 " * 70_000)[: MIB - 1],
    "lines": ("vllm serve deepseek-ai/DeepSeek-V3 -tp 8\n" * 40_000)[: MIB - 1],
    "variables": ("X=$X$X\n" * 200_000)[: MIB - 60] + "\nvllm serve deepseek-ai/DeepSeek-V3 $X\n",
    "quotes": ("vllm serve " + "'\"" * 600_000)[: MIB - 1],
    "braces": ("vllm serve " + "{{" * 600_000)[: MIB - 1],
    "dollars": ("vllm serve " + "$(" * 600_000)[: MIB - 1],
    "placeholders": ("vllm serve " + "<a" * 600_000)[: MIB - 1],
    "exports": "".join(f"export A{i}=x; ls\n" for i in range(50_000)) + "vllm serve m\n",
    "arrays": "A=(" + "x " * 3900 + ")\nls" + ' "${A[@]}"' * 30_000 + "\nvllm serve m\n",
    "forgotten": "".join(f"A{i}=1\n" for i in range(20_000)) + "source x\n" * 20_000 + "vllm serve m\n",
    "keywords": "if " * 300_000 + "vllm serve m\n",
    "unknown flags": ("vllm serve m " + " ".join(f"--nope{i}" for i in range(1500)) + "\n") * 60,
    "ignores": "# mlaplan: ignore[" + "MLA503," * 140_000 + "]\nvllm serve m\n",
    "ignores on lines": "# mlaplan: ignore[MLA503]\n" * 39_000 + "vllm serve m\n",
    "a large options file": "cat > x <<E\n"
    + "".join(f"nope-{i}: 1\n" for i in range(6000))
    + "E\n"
    + "vllm serve m --config x\n" * 64,
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE.keys())
def test_a_large_script_takes_no_more_than_a_second(text: str) -> None:
    start = time.process_time()
    checked(text, "a.sh")
    assert time.process_time() - start < 1.5  # a second on an idle machine


def test_values_of_values_do_not_grow_without_bound(lint: Lint) -> None:
    names = "".join(f"        - {{name: A{i}, value: $(A{i - 1})$(A{i - 1})}}\n" for i in range(1, 60))
    pod = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - image: vllm/vllm-openai:v0.33.0\n"
    found = lint(
        pod + "      args: [--model, $(A59)]\n      env:\n        - {name: A0, value: 0123456789}\n" + names, "a.yaml"
    )
    assert "MLA002" in {one.code for one in found}


@pytest.mark.parametrize("value", ["[" * 30_000 + "]" * 30_000, '{"a":' * 900 + "1" + "}" * 900])
def test_deep_json_in_a_flag_is_a_bad_value(lint: Lint, value: str) -> None:
    found = lint(f"# vLLM 0.33.0\nvllm serve m --hf-overrides '{value}' --hf-overrides.a{'.a' * 400} 1\n")
    assert [one.code for one in found if one.severity == "error"] == ["MLA404", "MLA404"]


def test_the_first_findings_of_a_rule_are_shown_and_the_others_counted() -> None:
    report = report_of("vllm serve m\n" + "# mlaplan: ignore[MLA503]\n" * 150)
    shown = [one for one in first_ones(report.findings) if one.code == "MLA003"]
    assert len(shown) == 100
    assert shown[-1].message.endswith("; 50 more like it are not shown")


@pytest.mark.parametrize("unit", ["a: b\n", "- [a, b]\n", "a: {b: c}\n", "- >\n  vllm serve\n"], ids=repr)
def test_a_large_manifest_too(unit: str) -> None:
    text = ("apiVersion: v1\nkind: Pod\nx:\n" + "".join("  " + line + "\n" for line in (unit * 200_000).split("\n")))[
        : MIB - 1
    ]
    start = time.process_time()
    checked(text, "a.yaml")
    assert time.process_time() - start < 1.5


def test_nothing_is_run(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("X=$(touch hacked)\n`touch hacked`\nvllm serve $(touch hacked) -tp `touch hacked`\n")
    run("check", "a.sh")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.sh"]


def test_links_out_of_the_folder_are_not_followed(run: Run, tmp_path: Path) -> None:
    inside, outside = tmp_path / "k8s", tmp_path / "outside"
    inside.mkdir(), outside.mkdir()
    (inside / "a.sh").write_text("vllm serve deepseek-ai/DeepSeek-V3 -tp 8\n")
    (outside / "b.sh").write_text("vllm serve deepseek-ai/DeepSeek-V3 --no-such-flag\n")
    (inside / "b.sh").symlink_to(outside / "b.sh")
    (inside / "more").symlink_to(outside)
    (inside / "loop").symlink_to(inside)
    result = run("check", "k8s")
    assert result.code == 0, result.out
    assert "no-such-flag" not in result.out
    assert result.err.startswith("1 file checked")


def test_a_model_is_not_read_from_outside(tmp_path: Path) -> None:
    checker = Checker(Asked())
    (tmp_path / "d").mkdir()
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "d" / "a.sh").write_text("vllm serve ../ -tp 8\n")
    checker.paths([str(tmp_path / "d")])
    assert not [one for one in checker.finish([], []).findings if one.severity == "error"]
