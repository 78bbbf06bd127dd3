"""A file of the package imports only from its own layer and the layers above it in `LAYERS`.

Imports inside functions and those for type checkers count like all others: the order has no exceptions. It
lets `check` run without the cost model, keeps formulas from seeing a report, and lets a reader stop anywhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import mlaplan

PACKAGE = Path(mlaplan.__file__).parent

LAYERS = (
    "errors", "units", "specs", "workload", "strategy", "costs", "calibration", "serving", "space", "engines", "pins",
    "rules", "ranking", "pricing", "explain", "families", "search", "plan", "sweep", "simulation", "kernel", "fleet",
    "validation", "lint", "manifests", "report", "api", "cli", "__main__",
)  # fmt: skip

# the reference attention is read and used on its own
KERNEL_MAY_IMPORT = {"errors"}


def files() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if "_data" not in p.parts)


def module_of(path: Path) -> str:
    """`mlaplan.costs.step`; a package is named by its folder."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str | None:
    """The layer of a module of ours; None for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


@cache
def imports(source: str, module: str, is_package: bool) -> tuple[tuple[int, str], ...]:
    """(line, module of ours) of every import, wherever it stands."""
    return tuple(_imports(ast.parse(source), module, is_package))


def _imports(tree: ast.Module, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = module.split(".") if is_package else module.split(".")[:-1]
                base = ".".join([*up[: len(up) - node.level + 1], *([base] if base else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
            found = [name if _is_module(name) else base for name in names]
        else:
            continue
        for name in found:
            if name.split(".")[0] == "mlaplan":
                yield node.lineno, name


def _is_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def breaches(source: str, module: str, is_package: bool = False) -> list[str]:
    """Imports of one file that go against the order, as text."""
    own = layer_of(module)
    if own is None:  # the package shows its two functions and nothing else
        return [
            f"{module}:{line} imports {n}" for line, n in imports(source, module, is_package) if n != f"{module}.api"
        ]
    out = []
    for line, name in imports(source, module, is_package):
        other = layer_of(name)
        if other is None or other == own:
            continue
        allowed = other in KERNEL_MAY_IMPORT if own == "kernel" else LAYERS.index(other) < LAYERS.index(own)
        if not allowed:
            out.append(f"{module}:{line} imports {name}, but {other} comes after {own}")
    return out


def test_every_file_belongs_to_a_layer() -> None:
    found = {layer_of(module_of(path)) for path in files()} - {None}
    assert found <= set(LAYERS), "a new top-level module takes its place in LAYERS"


def test_imports_follow_the_layers() -> None:
    found = [
        breach for path in files()
        for breach in breaches(path.read_text("utf-8"), module_of(path), path.name == "__init__.py")
    ]  # fmt: skip
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "from mlaplan.report import tables",
        "from mlaplan import report",
        "import mlaplan.cli.app",
        "from ..report import tables",
        "def f():\n    from mlaplan.plan import price",
        "if TYPE_CHECKING:\n    from mlaplan.serving.steady import served",
    ],
)
def test_a_wrong_import_is_seen(source: str) -> None:
    assert breaches(source, "mlaplan.costs.step")


@pytest.mark.parametrize(
    "source", ["from mlaplan.specs import chip", "from . import kv", "import numpy", "from .kv import x"]
)
def test_a_right_import_is_not(source: str) -> None:
    assert not breaches(source, "mlaplan.costs.step")


def test_the_reference_attention_stands_alone() -> None:
    assert breaches("from mlaplan.units import parse", "mlaplan.kernel.core")
    assert not breaches("from mlaplan.errors import MlaplanError", "mlaplan.kernel.core")


def test_no_two_files_import_each_other() -> None:
    """No cycle at import time, within a layer too; imports inside functions break one and do not count."""
    graph = {module_of(path): _imported_at_once(path) for path in files()}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join([*trail[trail.index(module) :], module])
        if module not in done:
            for other in sorted(graph.get(module, ())):
                # a package may name its own files, and a file its package
                if not other.startswith(f"{module}.") and not module.startswith(f"{other}."):
                    visit(other, (*trail, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def _imported_at_once(path: Path) -> set[str]:
    source = path.read_text("utf-8")
    top = {node.lineno for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom)}
    found = imports(source, module_of(path), path.name == "__init__.py")
    return {name for line, name in found if line in top}
