"""vLLM-Ascend: keys of the additional config, limits of its own versions, and what a manifest says of it."""

from __future__ import annotations

import pytest

from tests.lint.conftest import Lint

SERVE = "vllm serve deepseek-ai/DeepSeek-R1 -tp 16 --quantization ascend"


def config(version: str, text: str) -> str:
    return f"# mlaplan: engine=vllm-ascend@{version}\n{SERVE} --additional-config {text}\n"


KEYS = [
    ("0.23.0", "'{\"enable_flashcom1\": true}'", "warning", "did you mean 'enable_flashcomm1'?"),
    # the documentation's name, which the code does not read
    ("0.23.0", "'{\"flashcomm2_parallel_size\": 2}'", "warning", "did you mean 'enable_flashcomm2_parallel_size'?"),
    ("0.13.0", "'{\"torchair_graph_config\": {}}'", "warning", "it is read by 0.11.0"),
    ("0.23.0", '\'{"eplb_config": {"dynamic": true}}\'', "error", "the server stops at it"),
    ("0.13.0", '\'{"eplb_config": {"dynamic": true}}\'', "warning", "it has no effect"),
    ("0.26.0", "'{\"something_new\": true}'", "info", "it has no effect"),
    ("0.15.0", "'{\"enable_mc2_hierarchy_comm\": true}'", "info", "so in vLLM-Ascend 0.13.0"),
]


@pytest.mark.parametrize(("version", "text", "severity", "told"), KEYS)
def test_a_key_that_is_not_read_is_told(lint: Lint, version: str, text: str, severity: str, told: str) -> None:
    (found,) = (one for one in lint(config(version, text)) if one.code == "MLA555")
    assert found.severity == severity and told in found.message


def test_each_key_is_told_where_it_stands(lint: Lint) -> None:
    text = config("0.23.0", '\'{"aaa": 1, "refresh": true, "weight_prefetch_config": {"bbb": 2}}\'')
    line = text.splitlines()[1]
    found = [one for one in lint(text) if one.code == "MLA555"]
    assert [(one.line, one.col, one.width) for one in found] == [
        (2, line.index("aaa") + 1, 3), (2, line.index("bbb") + 1, 3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["'{\"refresh\": true}'", "'[1]'", "'no json'", "$CONFIG", "'{\"ascend_compilation_config\": 3}'",
     "'{\"layer_sharding\": [\"o_proj\"]}'"],
)  # fmt: skip
def test_what_is_known_or_cannot_be_read_is_passed_over(lint: Lint, text: str) -> None:
    assert not [one for one in lint(config("0.23.0", text)) if one.code == "MLA555"]


def test_a_dotted_key(lint: Lint) -> None:
    text = f"# mlaplan: engine=vllm-ascend@0.23.0\n{SERVE} --additional-config.enable_kv_nzz true\n"
    (found,) = (one for one in lint(text) if one.code == "MLA555")
    assert "did you mean 'enable_kv_nz'?" in found.message


def test_limits_are_the_plugin_s_own(lint: Lint) -> None:
    text = f"# mlaplan: engine=vllm-ascend@0.23.0 chip=ascend-910b3\n{SERVE} -dp 2 -pcp 2\n"
    assert any("cp=2 with dp=2: vLLM-Ascend 0.23.0 has one or the other" in one.message for one in lint(text))


def test_the_first_910_is_told(lint: Lint) -> None:
    text = f"# mlaplan: engine=vllm-ascend@0.23.0 chip=ascend-910a\n{SERVE}\n"
    told = [one.message for one in lint(text) if one.severity == "error" and one.code == "MLA120"]
    assert told == ["vLLM-Ascend 0.23.0 does not run on Huawei Ascend 910 (910A)"]


ROLE = """\
apiVersion: workload.serving.volcano.sh/v1alpha1
kind: ModelServing
metadata: {name: x}
spec:
  template:
    roles:
    - name: decode
      workerReplicas: WORKERS
      entryTemplate:
        spec:
          containers:
          - image: quay.io/ascend/vllm-ascend:v0.23.0
            command: [vllm, serve, deepseek-ai/DeepSeek-V3, --tensor-parallel-size, '8', --pipeline-parallel-size, '2',
                      --nnodes, '2']
            resources: {limits: {huawei.com/Ascend910: '8'}}
"""


@pytest.mark.parametrize(("workers", "codes"), [("1", set()), ("0", {"MLA531"}), ("'{{ .n }}'", set())])
def test_devices_of_a_role_are_those_of_its_pods(lint: Lint, workers: str, codes: set[str]) -> None:
    found = lint(ROLE.replace("WORKERS", workers), "x.yaml")
    assert {one.code for one in found if one.severity == "error" and one.code == "MLA531"} == codes
