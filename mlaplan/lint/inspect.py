"""One deployment through all rules, at every version that may be deployed, to findings.

What a rule finds in all of these versions is told as it is. What it finds in some is `info` and says in which.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from mlaplan.engines.flags import MOST_COMPLAINTS
from mlaplan.lint.finding import Finding, Found, finding
from mlaplan.lint.rule import LintRule
from mlaplan.lint.rules import lint_rules
from mlaplan.lint.rules.reading import NOT_CHECKED
from mlaplan.lint.versions import BASE
from mlaplan.lint.view import TITLES, View, is_open

if TYPE_CHECKING:
    from mlaplan.lint.deployment import Deployment


# flags that no rule reads: addresses, ports, ranks, names, secrets, places of files
UNREAD = {
    "--host", "--port", "--master-addr", "--master-port", "--node-rank", "--dist-init-addr", "--api-key", "--seed",
    "--data-parallel-address", "--data-parallel-rpc-port", "--data-parallel-rank", "--data-parallel-start-rank",
    "--served-model-name", "--download-dir", "--chat-template", "--revision", "--log-level", "--nccl-port",
    "--hf-token", "--tokenizer", "--tokenizer-path",
    "--reasoning-parser", "--tool-call-parser", "--ssl-certfile", "--ssl-keyfile",
}  # fmt: skip


class Inspection(NamedTuple):
    """Findings of one deployment, and how many rules did not run for want of the model, the chip or the version."""

    findings: list[Finding]
    missing: dict[str, int]


def views(deployment: Deployment) -> list[View]:
    """The deployment at each version that may be deployed, oldest first."""
    return [View(deployment, version) for version in deployment.candidates.versions]


def inspect(deployment: Deployment) -> Inspection:
    """All findings of a deployment."""
    seen = views(deployment)
    out: list[Finding] = []
    missing: dict[str, int] = {}
    open_versions = False
    known = {need for need in ("model", "chip") if getattr(deployment, need) is not None}
    for rule in _rules_for(deployment.engine):
        if not known.issuperset(rule.needs):
            for need in rule.needs:
                if need not in known:
                    missing[need] = missing.get(need, 0) + 1
            continue
        assert rule.check is not None
        hits = [(view, found) for view in seen if (found := list(rule.check(view)))]
        if hits:
            merged, demoted = _merged(rule, seen, hits)
            out += merged
            open_versions |= demoted
    if open_versions and deployment.candidates.how == "all":
        missing["version"] = 1
    out += _not_checked(seen[-1])
    return Inspection(out, missing)


@lru_cache(maxsize=8)
def _rules_for(engine: str) -> tuple[LintRule, ...]:
    """Rules that read launches of this engine. vLLM-Ascend takes vLLM's flags: rules on these hold for it too."""
    names = {engine, BASE.get(engine, engine)}
    return tuple(
        rule for rule in lint_rules() if rule.check is not None and (not rule.engines or names & {*rule.engines})
    )


def _merged(
    rule: LintRule, seen: Sequence[View], by_view: Sequence[tuple[View, list[Found]]]
) -> tuple[list[Finding], bool]:
    """A rule's findings over all versions, and whether any holds in some only."""
    by_place: dict[tuple[str, int, int, str], list[tuple[View, Found]]] = {}
    for view, all_found in by_view:
        for index, found in enumerate(_once(all_found)):
            place = (*found.word.place, f"{index}" if rule.code == "MLA120" else found.word.text)
            by_place.setdefault(place, []).append((view, found))
    out, demoted = [], False
    for hits in by_place.values():
        view, found = hits[-1]
        one = finding(rule.code, rule.slug, rule.severity, found)
        if len(hits) < len(seen):
            demoted = True
            one = one._replace(severity="info", edit=None, message=_in_some(one.message, [v for v, _ in hits], seen))
        out.append(one)
    return out, demoted


def _once(found: list[Found]) -> list[Found]:
    if len(found) < 2:
        return found
    kept: dict[tuple[str, int, int, str], Found] = {}
    for one in found:
        kept.setdefault((*one.word.place, one.message), one)
    return list(kept.values())


def _in_some(message: str, hits: list[View], seen: Sequence[View]) -> str:
    title = TITLES[hits[0].engine]
    versions = [view.version for view in hits]
    if versions == [view.version for view in seen[-len(versions) :]]:
        words = f"{versions[0]} and later" if len(versions) > 1 else versions[0]
    elif versions == [view.version for view in seen[: len(versions)]]:
        words = f"{versions[-1]} and earlier" if len(versions) > 1 else versions[0]
    else:
        words = " and ".join(versions)
    between = seen[0].deployment.candidates.how == "between"
    if between:
        wanted = seen[0].deployment.version
        return f"{message} (so in {title} {words}; whether in {wanted} is not known)"
    return f"{message} (in {title} {words})"


def _not_checked(view: View) -> Iterator[Finding]:
    """Values that are not known here, one finding a word."""
    told: set[tuple[str, int, int]] = set()
    for word in view.launch.words:
        if word.unknown and word.place not in told:
            told.add(word.place)
            flag = _flag_before(view, word)
            if flag in UNREAD:
                continue
            what = f"{flag} is not checked: " if flag else "not checked: "
            yield finding(NOT_CHECKED.code, NOT_CHECKED.slug, NOT_CHECKED.severity,
                          Found(word, f"{what}the value of {_short(word.unknown)} is not known here"))  # fmt: skip
    for given in view.line.given:
        words = view.launch.words[given.token : given.token + 2]
        if is_open(given.value) and given.name not in UNREAD and not any(word.place in told for word in words):
            told.add(words[0].place)
            why = f"{given.name} is not checked: the value of {_short(given.value)} is not known here"
            yield finding(NOT_CHECKED.code, NOT_CHECKED.slug, NOT_CHECKED.severity, Found(words[0], why))
    if view.line.stopped is not None:
        word = view.word_of(view.line.stopped)
        why = f"not checked: more than {MOST_COMPLAINTS} flags before {_short(word.text)} are not understood"
        yield finding(NOT_CHECKED.code, NOT_CHECKED.slug, NOT_CHECKED.severity, Found(word, why))
    config = view.get("--config")
    if isinstance(config, str) and view.launch.open == config:
        yield finding(NOT_CHECKED.code, NOT_CHECKED.slug, NOT_CHECKED.severity, Found(
            view.place("--config"), f"what {config} says is not checked here", "check that file too"))  # fmt: skip


def _flag_before(view: View, word: object) -> str | None:
    for given in view.line.given:
        if view.word_of(given.token) is word:
            return given.name
        at = given.token + 1
        if at < len(view.launch.words) and view.launch.words[at] is word and given.value is not True:
            return given.name
    return None


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 40 else text[:37] + "..."
