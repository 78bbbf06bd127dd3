"""Where engine, version, chip, devices and model come from, and what is said when one is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlaplan.lint.versions import candidates
from tests.cli.conftest import Run
from tests.lint.conftest import Lint


def test_versions() -> None:
    assert candidates("vllm", "0.11.0").how == "exact"
    assert candidates("vllm", "0.11.2").versions == ("0.11.0",)
    assert candidates("vllm", "0.20.1").versions == ("0.15.1", "0.26.0")
    assert candidates("vllm", "0.99.0").how == "newer"
    assert candidates("vllm", "0.6.3").how == "older"
    assert candidates("vllm", None).how == "all"
    assert candidates("vllm", "latest").how == "all"
    assert candidates("sglang", "0.5.23").versions == ("0.5.23",)
    assert candidates("sglang", "0.5.12") == candidates("sglang", "0.5.6")
    assert (candidates("sglang", "0.5.12").versions, candidates("sglang", "0.5.12").how) == (
        ("0.5.5", "0.5.23"),
        "between",
    )
    assert candidates("sglang", "0.5.3").how == "older"
    assert candidates("sglang", "0.5.30").how == "newer"


def test_a_version_between_two_is_checked_against_both(lint: Lint) -> None:
    found = {one.code: one for one in lint("# vLLM 0.20.0\nvllm serve deepseek-ai/DeepSeek-V3 -tp 6 --swap-space 4")}
    assert found["MLA101"].severity == "error"
    assert found["MLA402"].severity == "info"
    assert found["MLA402"].message.endswith("(so in vLLM 0.26.0; whether in 0.20.0 is not known)")


def test_a_newer_version_may_have_flags_that_are_not_known(lint: Lint) -> None:
    found = {one.code: one for one in lint("# vLLM 0.90.0\nvllm serve x --brand-new-thing 4")}
    assert found["MLA401"].severity == "info"


def test_what_is_missing_is_said_once(lint: Lint) -> None:
    found = [one for one in lint("vllm serve a/b -tp 8\nvllm serve c/d -tp 8\n") if one.code == "MLA004"]
    assert [one.message.split(" is ")[0] for one in found] == ["the chip", "the model"] or len(found) == 2


def test_an_option_fills_in_what_the_file_leaves_out(lint: Lint) -> None:
    text = "vllm serve /models/weights -tp 6\n"
    assert "MLA101" not in {one.code for one in lint(text)}
    assert "MLA101" in {one.code for one in lint(text, model="deepseek-v3")}
    assert "MLA531" in {one.code for one in lint(text, model="deepseek-v3", devices=4)}
    known = "vllm serve zai-org/GLM-4.7-Flash -tp 5\n"
    assert "MLA101" not in {one.code for one in lint(known, model="deepseek-v3")}, "the file's own model wins"


def test_a_path_that_ends_in_a_published_name(lint: Lint) -> None:
    assert "MLA101" in {one.code for one in lint("vllm serve /data/hub/DeepSeek-R1 -tp 6")}
    assert "MLA101" not in {one.code for one in lint("vllm serve /data/hub/DeepSeek-R1-AWQ -tp 6")}


def test_a_config_json_beside_the_script(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "v4"
    folder.mkdir()
    config = {"model_type": "deepseek_v4", "architectures": ["DeepseekV4ForCausalLM"], "hidden_size": 4096,
              "num_attention_heads": 64, "num_hidden_layers": 43}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (tmp_path / "a.sh").write_text("# vLLM 0.33.0\nvllm serve ./v4 -tp 3\n")
    result = run("check", "a.sh", "--select", "MLA1")
    assert result.out.splitlines()[0] == (
        "a.sh:2:17: error MLA101 64 attention heads do not divide by TP 3 [heads-per-rank]"
    )


def test_labels_and_images(lint: Lint) -> None:
    text = """apiVersion: v1
kind: Pod
spec:
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: cloud.google.com/gke-accelerator, operator: In, values: [nvidia-h100-80gb]}]}]}}}
  containers:
    - image: vllm/vllm-openai:v0.9.2-cu128
      args: [--model, deepseek-ai/DeepSeek-R1, -tp, '8', --max-model-len, '8192', --no-such]
"""
    found = {one.code: one for one in lint(text, "a.yaml")}
    assert found["MLA201"].message.startswith("DeepSeek-R1 takes 79.5 GiB of weights a chip with TP8")
    assert found["MLA401"].message.startswith("vLLM 0.9.2 has no flag --no-such")
    assert "MLA004" not in found


@pytest.mark.parametrize("chip", ["~20", "~/h100-sxm.yaml", "../h100-sxm.yaml"])
def test_a_comment_leads_nowhere_else(lint: Lint, chip: str) -> None:
    found = [one for one in lint(f"# mlaplan: chip={chip}\nvllm serve x\n") if one.code == "MLA005"]
    assert [one.message.split(" leads out of")[0] for one in found] == [chip]


def test_comments_that_say_nothing(lint: Lint) -> None:
    found = [one for one in lint("# mlaplan: chp=h100\n# mlaplan: hello\nvllm serve x\n") if one.code == "MLA005"]
    assert [(one.line, one.col) for one in found] == [(1, 12), (2, 1)]
