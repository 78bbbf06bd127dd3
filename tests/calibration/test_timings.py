"""The CSV file of a user's own timings: read, refused, and its template."""

from pathlib import Path

import pytest

from mlaplan.calibration import timings
from mlaplan.errors import SpecError, Unreadable

HEADER = "op,dtype,batch,heads,q_len,context,m,k,n,ranks,bytes,time_us\n"


@pytest.fixture
def write(tmp_path: Path):
    def put(text: str) -> str:
        path = tmp_path / "kernels.csv"
        path.write_text(text, "utf-8")
        return str(path)

    return put


def test_calls_are_grouped_by_operator_and_dtype_and_seconds_are_seconds(write):
    file = write(HEADER + "gemm,bf16,,,,,64,100,200,,,12.5\n# a remark\n\nmla_decode,fp8,2,16,,4096,,,,,,20\n"
                 "gemm,,,,,,1,100,200,,,11\n")  # fmt: skip
    gemm, decode = timings.read(file)
    assert gemm.columns["m"].tolist() == [1, 64]
    assert gemm.seconds.tolist() == pytest.approx([11e-6, 12.5e-6])
    assert (decode.op, decode.dtype, decode.columns["q_len"].tolist()) == ("mla_decode", "fp8", [1.0])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("gem,bf16,,,,,1,2,3,,,5", ":2: unknown op 'gem'; expected one of mla_decode, mla_prefill, gemm"),
        ("gemm,bf17,,,,,1,2,3,,,5", ":2: unknown dtype 'bf17' of gemm; expected one of bf16"),
        ("gemm,bf16,,,,,1,2,,,,5", ":2: n of gemm is nothing; expected a number above zero"),
        ("gemm,bf16,,,,,1,2,x,,,5", ":2: n of gemm is 'x'"),
        ("gemm,bf16,,,,,1,2,3,,,-5", ":2: time_us of gemm is '-5'"),
        ("gemm,bf16,,,,,1,2,3,,,nan", ":2: time_us of gemm is 'nan'"),
        ("gemm,bf16,,,,,1,2,3,,,5,6", ":2: 13 cells; expected 12, as in the header"),
        ("gemm,bf16,,,,,1,2,3,,,", "none of 1 lines has a time_us; expected timed calls"),
    ],
)
def test_a_bad_line_is_told(write, line, message):
    with pytest.raises(SpecError) as told:
        timings.read(write(HEADER + line + "\n"))
    assert message in str(told.value)


def test_a_bad_file_is_told(write, tmp_path):
    with pytest.raises(SpecError, match=r"unknown column 'kontext'; .*did you mean 'context'"):
        timings.read(write("op,kontext,time_us\n"))
    with pytest.raises(SpecError, match="missing column 'time_us'"):
        timings.read(write("op\n"))
    with pytest.raises(SpecError, match="no header"):
        timings.read(write("# nothing\n"))
    with pytest.raises(Unreadable, match="cannot be read: No such file"):
        timings.read(str(tmp_path / "none.csv"))


def test_the_template_asks_for_times_and_its_shapes_are_complete(write):
    text = timings.template()
    with pytest.raises(SpecError, match="has a time_us"):
        timings.read(write(text))
    filled = "\n".join(line if line.startswith(("#", "op,")) else line + "42" for line in text.splitlines())
    groups = {(rows.op, rows.dtype): len(rows) for rows in timings.read(write(filled))}
    assert groups == {("mla_decode", "bf16"): 10, ("gemm", "bf16"): 10, ("all_reduce", "bf16"): 5}
