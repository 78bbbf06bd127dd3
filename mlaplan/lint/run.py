"""`check` of files, folders, stdin and a command line: what is read, what is found, and the exit code."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mlaplan.errors import EXIT_FINDINGS, EXIT_OK, EXIT_USAGE, MlaplanError, Problem, SpecError, Unreadable
from mlaplan.lint.comments import Ignore
from mlaplan.lint.deployment import Asked, deployment
from mlaplan.lint.documents import Content, names_engine, read_content
from mlaplan.lint.files import files_of, is_launch_suffix
from mlaplan.lint.finding import SEVERITIES, Finding, Found, finding
from mlaplan.lint.launch import Launch, find_launch
from mlaplan.lint.rules.reading import BAD_COMMENT, CONTEXT, NOT_CHECKED, STRAY, UNREADABLE, UNUSED_IGNORE
from mlaplan.lint.text import Source, Word, read_text
from mlaplan.specs.source import MAX_BYTES, read_bytes

SCHEMA = "mlaplan.check/1"
NOT_PRICED = "not-priced"  # a config.json that is well-formed but of an architecture without a cost model
MOST_OF_A_RULE = 100  # findings in one file: who has more mends those first
STDIN, COMMAND = "<stdin>", "<command>"
WORDS = {
    "model": ("the model is not known", "--model, or a comment `# mlaplan: model=NAME`"),
    "chip": ("the chip is not known", "--chip, or a comment `# mlaplan: chip=NAME`"),
    "version": ("the engine's version is not known", "--engine-version, or an image with a version"),
}


@dataclass(slots=True)
class Report:
    """Problems of specs, findings in deployments, what could not be read, and how much was."""

    problems: list[Problem] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    unreadable: list[Problem] = field(default_factory=list)
    sources: dict[str, Source] = field(default_factory=dict)
    files: int = 0
    deployments: int = 0
    passed_over: int = 0
    strict: bool = False
    baselined: int = 0

    def count(self, severity: str) -> int:
        told = [one.severity for one in [*self.problems, *self.unreadable]]
        return [*told, *(one.severity for one in self.findings)].count(severity)

    @property
    def exit_code(self) -> int:
        if self.unreadable:
            return EXIT_USAGE
        bad = self.count("error") + (self.count("warning") if self.strict else 0)
        return EXIT_FINDINGS if bad else EXIT_OK

    def summary(self) -> str:
        """`2 files checked: 1 error, 0 warnings`"""
        parts = [counted(self.files, "file") + " checked: " + counted(self.count("error"), "error")]
        parts.append(counted(self.count("warning"), "warning"))
        if infos := self.count("info"):
            parts.append(f"{infos} info")
        if self.passed_over:
            parts.append(f"{counted(self.passed_over, 'file')} with nothing to check")
        if self.baselined:
            parts.append(f"{self.baselined} in the baseline")
        if self.unreadable:
            parts.append(f"{len(self.unreadable)} not readable")
        return ", ".join(parts)


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class Checker:
    """Reads inputs one after the other and gathers what is found in a report."""

    def __init__(self, asked: Asked, *, lenient: bool = False) -> None:
        self.asked, self.lenient = asked, lenient  # lenient: named files need hold nothing to check
        self.report = Report()
        self.ignores: list[Ignore] = []
        self.missing: dict[str, tuple[int, Word]] = {}

    def paths(self, paths: Sequence[str]) -> None:
        """Files, folders, or - for stdin."""
        for path in dict.fromkeys(paths):
            if path == "-":
                self.raw(
                    sys.stdin.buffer.read(MAX_BYTES + 1) if hasattr(sys.stdin, "buffer") else sys.stdin.read(), STDIN
                )
                continue
            listed = files_of(path)
            for file in listed.files:
                self.file(file, listed.root, explicit=listed.root is None and not self.lenient)

    def file(self, path: str, root: Path | None, *, explicit: bool) -> None:
        """One file. In a folder, one that holds nothing to check is passed over."""
        if path in self.report.sources:
            return
        try:
            raw = read_bytes(path)
        except Unreadable as error:
            self.report.unreadable += error.problems
            return
        except SpecError as error:
            self.report.problems += error.problems
            self.report.files += 1
            return
        folder = root if root is not None else Path(path).parent
        self._source(raw, path, folder, explicit=explicit)

    def raw(self, raw: bytes | str, name: str) -> None:
        """A text that is no file, under this name."""
        self._source(raw, name, None, explicit=True)

    def command(self, words: Sequence[str]) -> None:
        """A command line after `--`: its words are shown as one line."""
        if not words:
            raise MlaplanError("nothing after --; expected a launch command such as vllm serve MODEL ...")
        line, made = "", []
        for text in words:
            shown = text if text and not any(c in text for c in " \t\n'\"") else "'" + text.replace("\n", " ") + "'"
            quote = int(shown != text)
            made.append(Word(text, COMMAND, 1, len(line) + 1 + quote, max(len(shown) - 2 * quote, 1)))
            line += shown + " "
        source = Source(COMMAND, line.rstrip(), [line.rstrip()])
        self.report.sources[COMMAND] = source
        env: dict[str, Word] = {}
        while made and "=" in made[0].text and made[0].text.partition("=")[0].isidentifier():
            name, _, value = made[0].text.partition("=")
            env[name] = replace(made[0], text=value)
            made = made[1:]
        launch = find_launch(made, env)
        if launch is None:
            raise MlaplanError("no launch command of a known engine after --; expected vllm serve, "
                               "python -m sglang.launch_server or trtllm-serve")  # fmt: skip
        self.report.files += 1
        self._launch(launch, None)

    def _source(self, raw: bytes | str, name: str, folder: Path | None, *, explicit: bool) -> None:
        try:
            source = read_text(raw, name)
        except SpecError as error:
            if not explicit and not is_launch_suffix(name):
                self.report.passed_over += 1
                return
            self.report.problems += error.problems
            self.report.files += 1
            return
        self.report.sources[name] = source
        content = read_content(source, self.asked.engine)
        if not (explicit or content.launches or names_engine(source)) and (content.problems or content.unread):
            self.report.passed_over += 1  # one of the many other files of a folder
        elif content.kind in ("spec", "plan") or (content.kind == "unknown" and explicit and name != STDIN):
            self._spec(content, explicit)
        elif content.kind == "unknown":
            if name == STDIN:
                raise MlaplanError("stdin holds nothing to check; expected a launch command or a manifest with one")
            self.report.passed_over += 1
        else:
            self._content(content, folder)

    def _spec(self, content: Content, explicit: bool) -> None:
        from mlaplan.specs.lookup import validate_file

        source = content.source
        if content.kind == "plan":
            from mlaplan.lint.plans import check_plan

            self.report.findings += check_plan(source)
        elif content.kind == "unknown" and not source.name.endswith((".yaml", ".yml", ".json")):
            expected = (
                "a launch command (vllm serve, sglang.launch_server, trtllm-serve), a manifest with one, or a spec"
            )
            self.report.unreadable.append(Problem(source.name, None, None, "holds nothing to check", expected))
            return
        else:
            if source.name.endswith(".json") and not explicit and not source.name.endswith("config.json"):
                self.report.passed_over += 1
                return
            self.report.problems += [_lint(problem) for problem in validate_file(source.name)]
        self.report.files += 1

    def _content(self, content: Content, folder: Path | None) -> None:
        self.report.files += 1
        self.report.findings += [_of_problem(problem) for problem in content.problems]
        for word, why in content.unread:
            self._add(NOT_CHECKED, Found(word, f"not checked: {why}"))
        for word in content.stray:
            self._add(STRAY, Found(word, f"{word.text} stands as a command of its own; the line above does not go on",
                                   "end the line above with a backslash and nothing after it"))  # fmt: skip
        for word, why in content.comments.odd:
            self._add(BAD_COMMENT, Found(word, why))
        self.ignores += content.comments.ignores
        for launch in content.launches:
            self._launch(launch, folder)

    def _launch(self, launch: Launch, folder: Path | None) -> None:
        from mlaplan.lint.engines import known, model_word
        from mlaplan.lint.inspect import inspect

        if not known(launch.engine):
            self._add(NOT_CHECKED, Found(launch.anchor, f"not checked: {launch.engine} is not known"))
            return
        self.report.deployments += 1
        one = deployment(launch, self.asked, model_word(launch), folder)
        for word, why in one.odd:
            self._add(BAD_COMMENT, Found(word, why))
        found = inspect(one)
        self.report.findings += found.findings
        for need, count in found.missing.items():
            old = self.missing.get(need)
            self.missing[need] = (max(count, old[0]) if old else count, old[1] if old else launch.anchor)

    def _add(self, rule: Any, found: Found) -> None:
        self.report.findings.append(finding(rule.code, rule.slug, rule.severity, found))

    def finish(self, select: Sequence[str], ignore: Sequence[str]) -> Report:
        """The report, with what is missing told once, ignores applied, and unused ignores told."""
        for need, (count, word) in self.missing.items():
            what, how = WORDS[need]
            rules = (
                "what holds in some versions only is info"
                if need == "version"
                else f"{counted(count, 'rule')} did not run"
            )
            self._add(CONTEXT, Found(word, f"{what}: {rules}", f"say it with {how}"))
        report = self.report
        report.findings = self._without_ignored(_unique(report.findings))
        if select or ignore:
            report.findings = _chosen(report.findings, select, ignore)
        report.findings.sort(key=lambda one: one.order)
        if not (report.files or report.unreadable or report.problems or self.lenient):
            raise MlaplanError("nothing to check was found; expected launch scripts, manifests, or specs")
        return report

    def _without_ignored(self, findings: list[Finding]) -> list[Finding]:
        by_line: dict[tuple[str, int], list[Ignore]] = {}
        for ignore in self.ignores:
            for line in ignore.lines:
                by_line.setdefault((ignore.word.file, line), []).append(ignore)
        kept = []
        for one in findings:
            here = by_line.get((one.file, one.line or 0), [])
            hit = [ignore for ignore in here if ignore.name.lower() in (one.code.lower(), one.slug)]
            for ignore in hit:
                ignore.used = True
            if not hit:
                kept.append(one)
        for ignore in self.ignores:
            if not ignore.used:
                found = Found(ignore.word, f"nothing to ignore here for {ignore.name}", "remove it")
                kept.append(finding(UNUSED_IGNORE.code, UNUSED_IGNORE.slug, UNUSED_IGNORE.severity, found))
        return kept


def _unique(findings: list[Finding]) -> list[Finding]:
    kept: dict[tuple[Any, ...], Finding] = {}
    for one in findings:
        kept.setdefault(one.order, one)
    return list(kept.values())


def first_ones(findings: list[Finding]) -> list[Finding]:
    """The findings without those of a rule in a file that come after a hundred others; the last one says how many."""
    count = Counter((one.file, one.code) for one in findings)
    if max(count.values(), default=0) <= MOST_OF_A_RULE:
        return findings
    kept: list[Finding] = []
    seen: Counter[tuple[str, str]] = Counter()
    for one in findings:
        key = one.file, one.code
        seen[key] += 1
        if seen[key] < MOST_OF_A_RULE or count[key] <= MOST_OF_A_RULE:
            kept.append(one)
        elif seen[key] == MOST_OF_A_RULE:
            kept.append(one._replace(message=f"{one.message}; {count[key] - seen[key]:,} more like it are not shown"))
    return kept


def _chosen(findings: list[Finding], select: Sequence[str], ignore: Sequence[str]) -> list[Finding]:
    from mlaplan.lint.rules import selected

    wanted = frozenset().union(*map(selected, select)) if select else None
    dropped = frozenset().union(*map(selected, ignore)) if ignore else frozenset()
    return [one for one in findings if (wanted is None or one.code in wanted) and one.code not in dropped]


def _lint(problem: Problem) -> Problem:
    """An architecture that cannot be priced is no mistake in its file."""
    return problem._replace(severity="warning") if problem.code == NOT_PRICED else problem


def _of_problem(problem: Problem) -> Finding:
    message = problem.message + (f"; expected {problem.expected}" if problem.expected else "")
    return Finding(UNREADABLE.code, UNREADABLE.slug, problem.severity, problem.file, problem.line, problem.col, 1,
                   message, problem.hint)  # fmt: skip


def severities_in_order(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Errors first, then warnings, then info, each in the order of the files."""
    for severity in SEVERITIES:
        yield from (one for one in findings if one.severity == severity)
