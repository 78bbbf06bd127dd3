"""`recommend --emit lws|kthena`: what is printed and written, and what is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

LITE = "recommend deepseek-v2-lite h200-sxm --isl 512 --osl 128 --concurrency 64"


def test_manifests_are_written_to_a_folder(run, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "k8s"
    out = run(*f"{LITE} --devices 2 --engine vllm --emit lws -o {folder}".split())
    assert out.code == 0, out.err
    assert sorted(path.name for path in folder.iterdir()) == [
        "deepseek-v2-lite-leaderworkerset.yaml", "deepseek-v2-lite-service.yaml",
    ]  # fmt: skip
    assert f"kubectl apply -f {folder}" in out.out and f"written to {folder}" in out.err
    assert "--engine vllm" not in out.err.partition("next:")[0]  # it was named
    checked = run(*f"check {folder}".split())
    assert checked.code == 0, checked.out


def test_nothing_is_overwritten_without_force(run, tmp_path: Path) -> None:
    taken = tmp_path / "deepseek-v2-lite-service.yaml"
    taken.write_text("mine")
    out = run(*f"{LITE} --devices 2 --emit lws -o {tmp_path}".split())
    assert out.code == 2 and out.err.strip().endswith(f"{taken}: is there already; --force replaces it")
    assert taken.read_text() == "mine" and len(list(tmp_path.iterdir())) == 1
    assert run(*f"{LITE} --devices 2 --emit lws -o {tmp_path} --force".split()).code == 0
    assert yaml.safe_load(taken.read_text())["kind"] == "Service"


def test_manifests_are_printed_without_a_folder(run) -> None:
    out = run(*f"{LITE} --devices 4 --emit kthena --pd 1:1 --format json".split())
    # the best plan is a pipeline, which no connector joins
    assert out.code == 0 and "not given and taken: --pp 1 --dcp 1 --cp 1 --engine vllm" in out.err
    launch = json.loads(out.out)["launch"]
    assert launch["engine"] == "vLLM 0.33.0 in Kthena"
    kinds = [one["kind"] for one in yaml.safe_load_all(launch["commands"][0])]
    assert kinds == ["ModelServing", "ModelServer", "ModelRoute"]
    roles = next(yaml.safe_load_all(launch["commands"][0]))["spec"]["template"]["roles"]
    assert [(role["name"], role["replicas"]) for role in roles] == [("prefill", 1), ("decode", 1)]


def test_ascend_takes_its_own_engine(run) -> None:
    line = "recommend deepseek-v2-lite ascend-910b3 --devices 2 --isl 512 --osl 128 --emit lws"
    out = run(*line.split())
    assert out.code == 0 and "--engine vllm-ascend" in out.err
    assert "huawei.com/Ascend910: '" in out.out and "quay.io/ascend/vllm-ascend:v0.23.0" in out.out


REFUSED = [
    ("--emit lws --pd 1:1", "--pd goes with --emit kthena: a LeaderWorkerSet has one role"),
    ("--emit kthena --pd 1", "--pd 1: expected copies that prefill and copies that decode, such as 1:2"),
    ("--emit kthena --pd 0:2", "--pd 0:2: expected copies that prefill"),
    ("--emit kthena --pd 1:2 --replicas 2", "--pd 1:2 is 3 copies, not the 2 of --replicas"),
    ("--emit kthena --pd 1:2", "--replicas 3 does not divide --devices 2"),
    ("--emit vllm --force", "--force goes with --emit lws or --emit kthena"),
    ("--emit lws --force", "--force goes with -o FOLDER: nothing else is overwritten"),
    ("--emit lws --engine trtllm", "no manifests for --engine trtllm; expected one of vllm, vllm-ascend, sglang"),
    ("--emit lws --engine generic", "no manifests for --engine generic; expected one of vllm, vllm-ascend, sglang"),
    ("--emit lsw", "unknown engine or kind of manifest to emit 'lsw'; did you mean 'lws'?"),
    ("--emit kthena@1.0", "--emit kthena@1.0: manifests have no version to choose; the engine's goes with --engine"),
    ("--emit lws --format csv", "--emit writes commands, which csv has no place for"),
    ("--emit lws -o -", "expected a folder for the manifests; without -o they are printed"),
    (f"--emit lws -o {__file__}", "is a file; expected a folder for the manifests"),
    ("--emit lws -o /proc/none/k8s", "/proc/none/k8s: cannot be made"),
]


@pytest.mark.parametrize(("flags", "told"), REFUSED)
def test_what_cannot_be_is_refused_in_one_line(run, flags: str, told: str) -> None:
    out = run(*f"{LITE} --devices 2 {flags}".split())
    assert out.code == 2 and told in out.err
    assert "Traceback" not in out.err


def test_a_plan_without_manifests_is_told(run, tmp_path: Path) -> None:
    # three hosts of four chips, of which the last is half empty: a group has one template for all workers
    out = run(*(f"recommend deepseek-v2 gb200 --devices 10 --isl 512 --osl 128 --engine vllm --emit lws "
              f"--tp 2 --dp 5 --ep 10 -o {tmp_path}").split())  # fmt: skip
    assert out.code == 1 and "cannot launch the plan" in out.out and "alike" in out.out
    assert not list(tmp_path.iterdir())
