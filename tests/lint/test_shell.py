"""Shell text to commands: words, where they stand, what is resolved and what is not."""
# ruff: noqa: E501

from __future__ import annotations

import pytest

from mlaplan.lint.shell import read_shell
from mlaplan.lint.text import plain
from tests.lint.conftest import Lint


def words(text: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in read_shell(plain(text), "f").commands]


def last(text: str) -> list[str]:
    return words(text)[-1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b\\\n  c", ["a", "b", "c"]),
        ("a 'b c' \"d e\" f\\ g", ["a", "b c", "d e", "f g"]),
        ("a --x='{\"k\": 1}'", ["a", '--x={"k": 1}']),
        ("a # b", ["a"]),
        ("a b#c", ["a", "b#c"]),
        ("a > log 2>&1", ["a"]),
        ("nohup a b &", ["nohup", "a", "b"]),
        ("TP=8\na $TP ${TP} \"$TP\"", ["a", "8", "8", "8"]),
        ("a ${X:-4} ${X:-}", ["a", "4", ""]),
        ("TP=8\na ${TP:-4}", ["a", "8"]),
        ("export A=1 B=2\na $A $B", ["a", "1", "2"]),
        ('ARGS="--x 1 --y 2"\na $ARGS', ["a", "--x", "1", "--y", "2"]),
        ('ARGS="--x 1"\na "$ARGS"', ["a", "--x 1"]),
        ('ARGS=(--x 1\n  --y "2 3")\na "${ARGS[@]}"', ["a", "--x", "1", "--y", "2 3"]),
        ("ARGS=(--x)\nARGS+=(--y)\na ${ARGS[@]}", ["a", "--x", "--y"]),
        ("TP=4\nTP=8\na $TP", ["a", "8"]),
        ("cat <<EOF\nvllm serve x\nEOF\na b", ["a", "b"]),
    ],
    ids=repr,
)  # fmt: skip
def test_words(text: str, expected: list[str]) -> None:
    assert last(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a $TP",
        "if x; then TP=8; fi\na $TP",
        "TP=4\nif x; then TP=8; fi\na $TP",
        "for TP in 4 8; do a $TP; done",
        "TP=4\nsource env.sh\na $TP",
        "read TP\na $TP",
        "TP=$(nproc)\na $TP",
        "a $((4 * 2))",
        "a ${TP:=8}",
        "a ${TP-8}",
        "a `nproc`",
        "a {{ .Values.tp }}",
        "a <TP>",
        "a $1",
    ],
)
def test_what_is_not_known_is_not_guessed(text: str) -> None:
    found = [word for command in read_shell(plain(text), "f").commands for word in command.words if word.unknown]
    assert len(found) == 1


def test_several_commands() -> None:
    assert words("a 1; b 2 && c 3 | d 4\n(e 5)") == [["a", "1"], ["b", "2"], ["c", "3"], ["d", "4"], ["e", "5"]]


def test_places() -> None:
    command = read_shell(plain('X="--p 1"\na \\\n  --q=2 $X'), "f").commands[0]
    assert [(w.text, w.line, w.col) for w in command.words] == [
        ("a", 2, 1), ("--q=2", 3, 3), ("--p", 1, 4), ("1", 1, 8),
    ]  # fmt: skip


def test_environment() -> None:
    command = read_shell(plain("export A=1\nB=2\nC=3 a x"), "f").commands[0]
    assert {name: word.text for name, word in command.env.items()} == {"A": "1", "C": "3"}


def test_a_here_document_with_a_launch_is_told(lint: Lint) -> None:
    found = lint("cat <<EOF > run.sh\nvllm serve m --bad\nEOF\n")
    assert [(one.code, one.line) for one in found] == [("MLA002", 2)]


def test_an_unknown_value_is_told_once_and_nothing_is_concluded_from_it(lint: Lint) -> None:
    found = lint("# vLLM 0.33.0\nvllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size $TP", chip="h100-sxm")
    assert [one.head() for one in found] == [
        "serve.sh:2:59: info MLA002 --tensor-parallel-size is not checked: the value of $TP is not known here [not-checked]"
    ]


def test_flags_that_may_hide_in_a_variable_are_not_missed(lint: Lint) -> None:
    found = lint("# vLLM 0.33.0\nvllm serve deepseek-ai/DeepSeek-V3 -tp 8 --enable-eplb $MORE")
    assert {one.code for one in found if one.severity != "info"} == set()


@pytest.mark.parametrize(
    "text",
    [
        "docker run --gpus all -e VLLM_USE_V1=1 -p 8000:8000 vllm/vllm-openai:v0.33.0 --model deepseek-ai/DeepSeek-V3 -tp 6",
        "docker run --rm vllm/vllm-openai:v0.33.0 vllm serve deepseek-ai/DeepSeek-V3 -tp 6",
        "CUDA_VISIBLE_DEVICES=0 nohup /opt/bin/vllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size=6 &",
        "numactl -N 0 python3 -m vllm.entrypoints.openai.api_server --model=deepseek-ai/DeepSeek-V3 --tensor_parallel_size 6",
        "python3 -m sglang.launch_server --model deepseek-ai/DeepSeek-V3 --tp 6",
        "sglang serve --model-path deepseek-ai/DeepSeek-V3 --tp-size 6",
        "set -e; cd /x && exec vllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel 6",
    ],
)
def test_launches(lint: Lint, text: str) -> None:
    assert "MLA101" in {one.code for one in lint(text)}


def test_an_array_that_a_branch_may_extend_keeps_what_is_certain(lint: Lint) -> None:
    text = 'A=(-tp 6)\nif x; then\n  A+=(--enforce-eager)\nfi\nvllm serve deepseek-ai/DeepSeek-V3 "${A[@]}"\n'
    found = {one.code for one in lint(text)}
    assert {"MLA101", "MLA002"} <= found
    assert "MLA701" not in found


def test_the_version_of_an_image_that_runs_a_command(lint: Lint) -> None:
    found = lint("docker run lmsysorg/sglang:v0.5.5 python3 -m sglang.launch_server --model-path x --dcp-size 8")
    assert [(one.code, one.severity) for one in found if one.code == "MLA402"] == [("MLA402", "error")]


def test_other_commands_are_none(lint: Lint) -> None:
    assert "MLA101" not in {one.code for one in lint("pip install vllm\nvllm bench serve -tp 6\nvllm serve x\n")}
