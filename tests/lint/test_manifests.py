"""Kubernetes objects, compose files and engine configs: what is launched, and where each word stands."""
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.lint.conftest import Lint

POD = """apiVersion: v1
kind: Pod
spec:
  nodeSelector:
    nvidia.com/gpu.product: NVIDIA-H200
  containers:
    - name: server
      image: vllm/vllm-openai:v0.33.0
      resources: {limits: {nvidia.com/gpu: 8}}
"""


def heads(found: list, code: str) -> list[tuple[int, int]]:  # type: ignore[type-arg]
    return [(one.line, one.col) for one in found if one.code == code]


def test_a_list_of_arguments(lint: Lint) -> None:
    text = POD + "      args: [--model, deepseek-ai/DeepSeek-V3, --tensor-parallel-size, '8', '--block-sise', '64']\n"
    assert heads(lint(text, "pod.yaml"), "MLA401") == [place(text, "--block-sise")]


def test_arguments_on_lines(lint: Lint) -> None:
    text = (
        POD
        + "      command:\n      - vllm\n      - serve\n      - deepseek-ai/DeepSeek-V3\n      - --tensor-parallel-size=6\n"
    )
    found = lint(text, "pod.yaml")
    assert heads(found, "MLA101") == [(14, 9)]
    assert heads(found, "MLA531") == [(14, 9)], "6 of 8 devices"


def place(text: str, word: str) -> tuple[int, int]:
    """Where a word stands in a text."""
    before = text[: text.index(word)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


@pytest.mark.parametrize(
    "script",
    [
        "|\n          set -e\n          vllm serve deepseek-ai/DeepSeek-V3 \\\n            --block-sise 64\n",
        ">-\n          set -e;\n          vllm serve deepseek-ai/DeepSeek-V3\n          --block-sise 64\n",
        "'vllm serve deepseek-ai/DeepSeek-V3\n          --block-sise 64'\n",
        '"vllm serve deepseek-ai/DeepSeek-V3 \\\n          --block-sise 64"\n',
        "vllm serve deepseek-ai/DeepSeek-V3 --block-sise 64\n",
    ],
    ids=["literal", "folded", "single", "double", "plain"],
)
def test_a_script_keeps_its_places(lint: Lint, script: str) -> None:
    text = POD + f"      command: [sh, -c]\n      args:\n        - {script}"
    assert heads(lint(text, "pod.yaml"), "MLA401") == [place(text, "--block-sise")]


def test_a_more_indented_line_of_a_folded_text_is_a_command_of_its_own(lint: Lint) -> None:
    script = ">-\n          vllm serve deepseek-ai/DeepSeek-V3 -tp 8\n            --max-model-len 8192\n"
    text = POD + f"      command:\n        - sh\n        - -c\n        - {script}"
    assert heads(lint(text, "pod.yaml"), "MLA006") == [place(text, "--max-model-len")]


def test_environment_and_references(lint: Lint) -> None:
    text = POD + (
        "      env:\n        - {name: TP, value: '6'}\n        - {name: VLLM_ATTENTION_BACKEND, value: FLASHMLA}\n"
        "      args: [--model, deepseek-ai/DeepSeek-V3, --tensor-parallel-size, $(TP), --max-model-len, $(LEN)]\n"
    )
    found = lint(text, "pod.yaml")
    assert {one.code for one in found} >= {"MLA101", "MLA406", "MLA002"}
    assert heads(found, "MLA406") == [place(text, "FLASHMLA")]


def test_templates_are_not_guessed(lint: Lint) -> None:
    text = POD + "      args: [--model, deepseek-ai/DeepSeek-V3, --tensor-parallel-size, '{{ .Values.tp }}']\n"
    found = lint(text, "pod.yaml")
    assert {(one.code, one.severity) for one in found} == {("MLA002", "info")}


def test_every_kind_of_object(lint: Lint) -> None:
    container = "{name: a, image: 'vllm/vllm-openai:v0.33.0', args: [--model, deepseek-ai/DeepSeek-V3, -tp, '6']}"
    for path in (
        "spec: {template: {spec: {containers: [%s]}}}",
        "spec: {jobTemplate: {spec: {template: {spec: {containers: [%s]}}}}}",
        "spec: {leaderWorkerTemplate: {size: 1, leaderTemplate: {spec: {containers: [%s]}}}}",
        "spec: {template: {roles: [{entryTemplate: {spec: {containers: [%s]}}}]}}",
        "items: [{spec: {containers: [%s]}}]",
    ):
        text = f"apiVersion: x/v1\nkind: Anything\n{path % container}\n"
        assert "MLA101" in {one.code for one in lint(text, "a.yaml")}, path


def test_several_documents(lint: Lint) -> None:
    bad = POD + "      args: [--model, deepseek-ai/DeepSeek-V3, -tp, '6']\n"
    assert heads(lint(f"---\n{bad}---\n{bad}", "a.yaml"), "MLA101") == [(11, 48), (22, 48)]


def test_pods_of_a_group_are_counted(lint: Lint) -> None:
    text = (
        "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nspec:\n  leaderWorkerTemplate:\n    size: 2\n"
        "    leaderTemplate:\n      spec:\n        containers:\n          - image: vllm/vllm-openai:v0.33.0\n"
        "            args: [--model, deepseek-ai/DeepSeek-V3, -tp, '8', -pp, '{pp}']\n"
        "            resources: {{limits: {{nvidia.com/gpu: 8}}}}\n"
    )
    assert not heads(lint(text.format(pp=2), "a.yaml"), "MLA531")
    assert heads(lint(text.format(pp=4), "a.yaml"), "MLA531")


def test_pods_that_are_not_seen_are_not_missed(lint: Lint) -> None:
    text = POD + "      args: [--model, deepseek-ai/DeepSeek-V3, -tp, '8', -pp, '2']\n"
    assert heads(lint(text, "a.yaml"), "MLA531")
    assert not heads(lint(text.replace("kind: Pod", "kind: RayCluster"), "a.yaml"), "MLA531")
    ray = POD + "      command: [sh, -c, 'ray start --head && vllm serve deepseek-ai/DeepSeek-V3 -tp 16']\n"
    assert not heads(lint(ray, "a.yaml"), "MLA531")


@pytest.mark.parametrize(
    "command",
    [
        "command: --model deepseek-ai/DeepSeek-V3 --tensor-parallel-size 6",
        "command: [--model, deepseek-ai/DeepSeek-V3, --tensor-parallel-size, '6']",
        "command: >\n      --model deepseek-ai/DeepSeek-V3\n      --tensor-parallel-size ${TP:-6}",
        "entrypoint: [vllm, serve]\n    command: deepseek-ai/DeepSeek-V3 -tp 6",
        "command: [--model, deepseek-ai/DeepSeek-V3, --tensor-parallel-size, '${TP:-6}']",
    ],
)
def test_compose(lint: Lint, command: str) -> None:
    text = f"services:\n  llm:\n    image: vllm/vllm-openai:v0.33.0\n    {command}\n"
    text += "    environment:\n      - VLLM_USE_V1=1\n"
    found = {one.code for one in lint(text, "compose.yaml")}
    assert found >= {"MLA101", "MLA406"}


def test_an_engine_config(lint: Lint) -> None:
    text = (
        "# vLLM 0.33.0\nmodel: deepseek-ai/DeepSeek-V3\ntensor-parallel-size: 6\nenforce-eager: true\nmax_num_seq: 4\n"
    )
    found = lint(text, "config.yaml")
    assert heads(found, "MLA101") == [(3, 1)]
    assert heads(found, "MLA701") == [(4, 1)]


def test_yaml_that_cannot_be_read(lint: Lint) -> None:
    found = lint("apiVersion: v1\nkind: Pod\nspec: [1, 2\n", "pod.yaml")
    assert [(one.code, one.line, one.col) for one in found] == [("MLA001", 3, 7)]


def test_a_template_that_is_no_yaml_is_not_checked(lint: Lint) -> None:
    text = POD + "{{- if .Values.debug }}\n      args: [--model, x]\n{{- end }}\n"
    found = lint(text, "pod.yaml")
    assert [(one.code, one.severity) for one in found] == [("MLA002", "info")]


def test_other_broken_files_of_a_folder_are_passed_over(run: Run, tmp_path: Path) -> None:
    (tmp_path / "k8s").mkdir()
    (tmp_path / "k8s" / "a.yaml").write_text(POD + "      args: [--model, deepseek-ai/DeepSeek-V3, -tp, '8']\n")
    (tmp_path / "k8s" / "b.yaml").write_text("a: [1\n")
    (tmp_path / "k8s" / "c.yaml").write_text("{{- if .Values.x }}\na: 1\n{{- end }}\n")
    result = run("check", "k8s")
    assert (result.code, "2 files with nothing to check" in result.err) == (0, True), result.out
    assert run("check", "k8s/b.yaml").code == 1, "a file that is named is told of"


def test_a_variable_that_no_shell_fills_in_hides_its_own_flag_alone(lint: Lint) -> None:
    """A list of arguments has no shell: the engine would read the dollar sign, or a template fills it in before."""
    text = POD + (
        "      args: [--model=deepseek-ai/DeepSeek-V3, --tensor-parallel-size=6, --max-num-batched-tokens=$TOKENS]\n"
    )
    found = lint(text, "pod.yaml")
    assert heads(found, "MLA101") == [place(text, "--tensor-parallel-size")]
    assert heads(found, "MLA002") == [place(text, "--max-num-batched-tokens")]
