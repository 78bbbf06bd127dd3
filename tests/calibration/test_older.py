"""Tables of older releases: read from a wheel or a folder, with the names of today, and refused where they are not."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from mlaplan.calibration import older, tables
from mlaplan.errors import MlaplanError

DATA = "aiconfigurator/systems/data"
WHEEL = "aiconfigurator-0.4.0-py3-none-any.whl"
STAMP = "TRTLLM,1.0.0rc3,NVIDIA H200"
GEMM = "framework,version,device,op_name,kernel_source,gemm_dtype,m,n,k,latency\n"
CORE = "framework,version,device,op_name,mla_dtype,kv_cache_dtype,batch_size,isl,tp_size,step,latency\n"
EXPERTS = ("framework,version,device,op_name,kernel_source,moe_dtype,num_tokens,hidden_size,inter_size,topk,"
           "num_experts,moe_tp_size,moe_ep_size,distribution,latency\n")  # fmt: skip
H200 = f"{DATA}/h200_sxm/trtllm/1.0.0rc3"
FILES = {
    f"{H200}/gemm_perf.txt": GEMM
    + f"{STAMP},gemm,torch_flow,float16,16,512,1024,0.02\n" * 2
    + f"{STAMP},gemm,torch_flow,float16,32,512,1024,0\n"
    + "TRTLLM,1.0.0rc3,NVIDIA H100 80GB HBM3,gemm,torch_flow,float16,64,512,1024,0.04\n"
    + "TRTLLM,1.0.0,NVIDIA H200,gemm,torch_flow,float16,128,512,1024,0.05\n"
    + "VLLM,1.0.0rc3,NVIDIA H200,gemm,torch_flow,float16,256,512,1024,0.06\n"
    + ",,,gemm,torch_flow,fp8_block,512,512,1024,0.07\n",
    f"{H200}/generation_mla_perf.txt": CORE
    + f"{STAMP},mla_generation,float16,float16,4,1,8,1023,0.03\n{STAMP},mla_generation,float16,fp8,4,1,128,1023,0.02\n",
    f"{H200}/moe_perf.txt": EXPERTS + f"{STAMP},moe,moe_torch_flow,fp8_block,64,7168,2048,8,256,1,8,uniform,0.3\n",
    f"{H200}/mla_bmm_perf.txt": "framework,version,device,op_name,bmm_dtype,num_tokens,num_heads,latency\n"
    "SGLang,1.0.0rc3,NVIDIA H200,mla_gen_pre,float16,4,16,0.01\n",
    f"{H200}/context_attention_perf.txt": "not read\n",
    f"{DATA}/h200_sxm/trtllm/0.20.0/gemm_perf.txt": GEMM + "TRTLLM,0.20.0,NVIDIA H200,gemm,x,float16,1,512,512,0.01\n",
    f"{DATA}/h200_sxm/trtllm/0.9.0/readme.txt": "nothing that is read\n",
    f"{DATA}/h200_sxm/vllm/0.11.0/gemm_perf.txt": "version https://git-lfs.github.com/spec/v1\n",
    f"{DATA}/gb200_sxm/trtllm/1.0.0rc6/gemm_perf.txt": GEMM
    + "TRTLLM,1.0.0rc6,NVIDIA GB200,gemm,torch_flow,nvfp4,16,512,1024,0.02\n",
    f"{DATA}/h200_sxm.yaml": "node: {}\n",
}


@pytest.fixture
def wheel(tmp_path: Path) -> str:
    path = tmp_path / WHEEL
    with zipfile.ZipFile(path, "w") as packed:
        for name, content in FILES.items():
            packed.writestr(name, content)
    return str(path)


def of(path: str, chip: str = "h200-sxm", release: str = "1.0.0rc3", engine: str = "trtllm") -> older.Older:
    device = {"h200-sxm": "NVIDIA H200", "gb200": "NVIDIA GB200"}.get(chip)
    return older.opened(path, chip, engine, release, () if device is None else (device,))


@pytest.mark.parametrize("unpacked", [False, True], ids=["wheel", "folder"])
def test_tables_are_read_with_the_names_of_today(wheel: str, tmp_path: Path, unpacked: bool) -> None:
    if unpacked:
        zipfile.ZipFile(wheel).extractall(tmp_path / "there")
    by = of(str(tmp_path / "there") if unpacked else wheel)
    products = tables.gemm("h200-sxm", "trtllm", "bf16", by=by)
    assert products is not None
    assert products.columns["m"].tolist() == [16]  # twice the same row, one of no time, and three of others
    assert products.seconds.tolist() == pytest.approx([20e-6])
    assert products.source == "ai-dynamo/aiconfigurator gemm_perf, TensorRT-LLM 1.0.0rc3"
    decode = tables.mla_decode("h200-sxm", "trtllm", "bf16", by)
    assert decode is not None and decode.columns["heads"].tolist() == [16]  # of 128, over 8 ranks
    fp8 = tables.mla_decode("h200-sxm", "trtllm", "fp8", by)
    assert fp8 is not None and fp8.columns["heads"].tolist() == [1]
    experts = tables.grouped_gemm("h200-sxm", "trtllm", "fp8_block", by)
    assert experts is not None and experts.columns["stored"].tolist() == [32]  # the balanced ones, called uniform


def test_rows_filed_where_they_do_not_belong_are_left_out_and_told(wheel: str) -> None:
    by = of(wheel)
    unstamped = tables.gemm("h200-sxm", "trtllm", "fp8_block", by=by)
    assert unstamped is not None and unstamped.columns["m"].tolist() == [512]
    assert by.told == {
        "gemm_perf": "gemm_perf: 3 of its rows, which say TRTLLM 1.0.0 NVIDIA H200, TRTLLM 1.0.0rc3 NVIDIA H100 80GB "
        "HBM3, VLLM 1.0.0rc3 NVIDIA H200"
    }


def test_a_table_without_a_row_of_its_own_is_as_if_there_were_none(wheel: str) -> None:
    by = of(wheel)
    assert tables.bmm("h200-sxm", "trtllm", "bf16", by) is None
    assert by.told["mla_bmm_perf"] == "mla_bmm_perf: 1 of its rows, which say SGLang 1.0.0rc3 NVIDIA H200"
    assert tables.mla_prefill("h200-sxm", "trtllm", "bf16", by) is None  # no such file
    assert tables.custom_all_reduce("h200-sxm", "trtllm", by=by) is None


def test_a_folder_that_lost_its_ending_since_is_found(wheel: str) -> None:
    found = tables.gemm("gb200", "trtllm", "fp4", by=of(wheel, "gb200", "1.0.0rc6"))
    assert found is not None and len(found) == 1


@pytest.mark.parametrize(
    ("chip", "engine", "release", "told"),
    [
        ("h200-sxm", "trtllm", "1.0.0", "{}: no measured tables of trtllm 1.0.0 on h200-sxm; did you mean '1.0.0rc3'?; "
                                        "it has 0.20.0, 1.0.0rc3"),
        ("h200-sxm", "sglang", "0.5.0", "{}: no measured tables of sglang on h200-sxm; it has trtllm, vllm"),
        ("k3", "trtllm", "1.0.0", "{}: no measured tables of k3; it has gb200, h200-sxm"),
    ],
)  # fmt: skip
def test_what_a_wheel_does_not_have_is_told_with_what_it_has(
    wheel: str, chip: str, engine: str, release: str, told: str
) -> None:
    with pytest.raises(MlaplanError) as error:
        of(wheel, chip, release, engine)
    assert str(error.value) == f"--tables {told.format(wheel)}"


def test_what_is_no_table_is_told(wheel: str) -> None:
    with pytest.raises(MlaplanError, match=r"0\.11\.0/gemm_perf\.txt: no column 'gemm_dtype'; expected a table of"):
        tables.gemm("h200-sxm", "vllm", "bf16", by=of(wheel, release="0.11.0", engine="vllm"))


def test_an_empty_file_is_told(tmp_path: Path) -> None:
    folder = tmp_path / H200
    folder.mkdir(parents=True)
    (folder / "gemm_perf.txt").write_bytes(b"")
    with pytest.raises(MlaplanError, match=r"gemm_perf\.txt: cannot be read as CSV: No columns to parse from file"):
        tables.gemm("h200-sxm", "trtllm", "bf16", by=of(str(tmp_path)))


def test_what_is_no_wheel_is_told(tmp_path: Path) -> None:
    (tmp_path / "notes.whl").write_text("no zip file", "utf-8")
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as packed:
        packed.writestr("other/__init__.py", "")
    (tmp_path / "empty").mkdir()
    for name, told in (
        ("missing.whl", "no such file or folder"),
        ("notes.whl", f"not a wheel; expected a file such as {WHEEL}, or a folder of one"),
        ("other.whl", f"there are no tables in it; expected {DATA}"),
        ("empty", f"there are no tables in it; expected {DATA}"),
    ):
        with pytest.raises(MlaplanError) as error:
            of(str(tmp_path / name))
        assert str(error.value) == f"--tables {tmp_path / name}: {told}"
