"""Names and paths of chips and models to files, and files to specs.

A name is looked up in ./hardware or ./models, then in the repository an editable install runs from, or else
in the copy inside the package. The first hit wins; the spec's `origin` says which.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlaplan.errors import Problem, SpecError, UnknownName, Unreadable, did_you_mean
from mlaplan.specs import releases, source

if TYPE_CHECKING:
    from mlaplan.specs.chip import Calibration, Chip
    from mlaplan.specs.model import Model

FOLDERS = {"chip": "hardware", "model": "models"}
SUFFIXES = (".yaml", ".yml", ".json")
ANY_ENGINE = "generic"
OVERLAY = ".cal"  # hardware/CHIP.ENGINE.cal.yaml holds what calibration found, and is no chip itself
OF_LINE = re.compile(r"(?P<engine>[^.@]+)@(?P<line>\d+\.\d+)")  # the end of its name where it is of an older release
PACKAGE = Path(__file__).resolve().parent.parent


def load_chip(
    name_or_path: str, overrides: Sequence[str] = (), engine: str | None = None, release: str | None = None
) -> Chip:
    """The chip of this name or file, with `path=value` or `path=x0.5` overrides applied before validation.

    With an engine, the fits of its calibration file beside the chip's, if there is one, replace the chip's own: those
    of the newest release, or of the line that stands for the release asked for.
    """
    file = find("chip", name_or_path)
    overlay = overlay_file(file, engine, release)
    return chip_of(source.read(file), overrides, None if overlay is None else source.read(overlay))


def overlay_file(chip_file: str, engine: str | None, release: str | None = None) -> str | None:
    """The calibration beside a chip's file, of this engine or else of none in particular.

    CHIP.ENGINE.cal.yaml has the newest release of the engine that was measured, CHIP.ENGINE@1.0.cal.yaml the line
    1.0. Fits are kept per minor line: patch releases of one line share them. A release takes the newest line that is
    not newer than its own, the oldest where all are newer; no release takes the newest. A file without a line in its
    name that does not say its release either counts as newer than those that have one.
    """
    if engine is None:
        return None
    path = Path(chip_file)
    newest = path.with_name(f"{path.stem}.{engine}{OVERLAY}.yaml")
    own, asked = newest.is_file(), releases.line_of(release)
    files = _files_of_lines(path, engine) if asked is not None or not own else {}
    if own:
        line = _line_inside(newest, engine) if files else None
        if asked is None or not files or (line is None and asked > max(files)):
            return str(newest)
        if line is not None:
            files[line] = newest
    if files:
        return str(files[max(files) if asked is None else releases.chosen(asked, files)])
    return None if engine == ANY_ENGINE else overlay_file(chip_file, ANY_ENGINE)


def _files_of_lines(chip_file: Path, engine: str) -> dict[releases.Line, Path]:
    """The calibrations of older releases of an engine beside a chip's file, by line."""
    start, end = f"{chip_file.stem}.{engine}@", f"{OVERLAY}.yaml"
    found: dict[releases.Line, Path] = {}
    for path in sorted(chip_file.parent.glob("*@*.yaml")):
        if not (path.name.startswith(start) and path.name.endswith(end)):
            continue
        named = path.name.removesuffix(end)[len(chip_file.stem) + 1 :]
        line = releases.line_of(named.partition("@")[2]) if OF_LINE.fullmatch(named) else None
        if line is None:
            expected = f"{start}1.0{end}, with the line of the release"
            raise SpecError([Problem(str(path), None, None, "the name of this calibration has no line", expected)])
        found[line] = path
    return found


def _line_inside(file: Path, engine: str) -> releases.Line | None:
    """The line of the release that a calibration says it is of."""
    try:
        versions = source.read(file).data.get("versions")
    except SpecError:
        return None  # a broken file says so when it is used
    said = versions.get(engine) if isinstance(versions, dict) else None
    return releases.line_of(said) if isinstance(said, str) else None


def load_model(name_or_path: str, overrides: Sequence[str] = ()) -> Model:
    """The model of this name, YAML file or unmodified config.json, with `path=value` overrides applied."""
    return model_of(source.read(find("model", name_or_path)), overrides)


def validate_file(path: str | Path) -> list[Problem]:
    """Every problem of a chip, a model or a config.json, told apart by content; raises only Unreadable."""
    try:
        document = source.read(path)
        kind = _kind(document)
        if kind == "chip":
            return list(chip_of(document).warnings)
        if kind == "calibration":
            _calibration(document)
            return []
        model_of(document)
        return []
    except Unreadable:
        raise
    except SpecError as error:
        return error.problems


def load_calibration(file: str) -> Calibration:
    """The calibration in this file."""
    return _calibration(source.read(file))


def _calibration(document: source.Document) -> Calibration:
    from mlaplan.specs.chip import Calibration
    from mlaplan.specs.validate import build

    found: Calibration = build(Calibration, document)
    return found


def chip_of(document: source.Document, overrides: Sequence[str] = (), overlay: source.Document | None = None) -> Chip:
    """The chip in a document, which is changed: with a calibration laid over it, and overrides over both."""
    from mlaplan.specs.chip import Chip
    from mlaplan.specs.plausible import warnings
    from mlaplan.specs.validate import build

    _refuse_other_kind(document, "chip")
    if overlay is not None:
        if not document.shipped:
            build(Chip, document)  # what is wrong in it is told as its own, before anything is laid over it
        _lay_over(document, overlay)
    if overrides:
        from mlaplan.specs.override import apply

        apply(document, Chip, overrides)
        document.shipped = False
    chip: Chip = build(Chip, document)
    chip._origin, chip._calibration = document.file, "" if overlay is None else overlay.file
    chip._warnings = (*_other_name(document), *warnings(chip, document))
    return chip


def _other_name(document: source.Document) -> list[Problem]:
    """A file that is asked for by one name, or copies a chip that is shipped, and calls the chip by another name."""
    file, name = Path(document.file), str(document.data.get("name"))
    if document.shipped or file.suffix not in (".yaml", ".yml") or file.stem == name:
        return []
    shipped = folders("chip")[-1]
    asked_by_name = file.parent.resolve() in (folder.resolve() for folder in folders("chip"))
    if not asked_by_name and not any(_is_file(shipped / f"{one}.yaml") for one in (file.stem, name)):
        return []
    told = f"name: {file.name} calls the chip '{name}', and so do answers"
    expected = f"'{file.stem}', or the file to be {name}.yaml"
    return [document.problem(("name",), told, expected=expected, severity="warning")]


def _refuse_other_name(overlay: source.Document, found: Calibration) -> None:
    """Refuses a calibration whose file is named for another engine, or for another line of releases."""
    name = Path(overlay.file).name.removesuffix(f"{OVERLAY}.yaml")
    of_line = re.search(rf"\.{OF_LINE.pattern}$", name)
    named = of_line["engine"] if of_line else name.rpartition(".")[2]
    as_named = "as the name of the file says"
    if found.engine != named:
        told = f"these are the kernels of {found.engine}"
        raise SpecError([overlay.problem(("engine",), told, expected=f"{named}, {as_named}")])
    if of_line is None:
        return
    release, expected = found.versions.get(named), f"a release of {of_line['line']}, {as_named}"
    if release is None:
        raise SpecError([overlay.problem((), f"versions has no release of {named}", expected=expected)])
    if releases.line_of(release) != releases.line_of(of_line["line"]):
        told = f"these are the kernels of {named} {release}"
        raise SpecError([overlay.problem(("versions", named), told, expected=expected)])


def _lay_over(document: source.Document, overlay: source.Document) -> None:
    """Puts the fits of a calibration in the place of the chip's own; a mistake in it is told as its own."""
    found = _calibration(overlay)
    if found.chip != document.data.get("name"):
        expected = f"{document.data.get('name')}, the chip beside it"
        raise SpecError([overlay.problem(("chip",), f"this calibrates {found.chip}", expected=expected)])
    _refuse_other_name(overlay, found)
    document.shipped = document.shipped and overlay.shipped
    data = document.data
    for op, fits in overlay.data.get("efficiency", {}).items():
        own = data.setdefault("efficiency", {})
        own[op] = {**own.get(op, {}), **fits}
    for link in ("scale_up", "scale_out"):
        if isinstance(data.get(link), dict) and overlay.data.get(link):
            data[link]["collectives"] = {**data[link].get("collectives", {}), **overlay.data[link]}


def model_of(document: source.Document, overrides: Sequence[str] = ()) -> Model:
    """The model in a document, which overrides change."""
    from mlaplan.specs.model import Model
    from mlaplan.specs.validate import build

    config = is_config(document)
    if config:
        from mlaplan.specs.hf import model_from_config

        model = model_from_config(document)
        document = written(model, document.file) if overrides else document
    else:
        _refuse_other_kind(document, "model")
    if overrides:
        from mlaplan.specs.override import apply

        apply(document, Model, overrides)
        document.shipped = False
    if overrides or not config:
        model = build(Model, document)
    model._origin = document.file
    return model


def written(model: Model, file: str | None = None) -> source.Document:
    """A model as its own file would have it, whatever it was read from."""
    data = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return source.Document(model.origin if file is None else file, data)


def is_config(document: source.Document) -> bool:
    """Whether the data is a Hugging Face config.json and not one of our own specs."""
    marks = ("model_type", "architectures", "hidden_size", "text_config")
    return "kind" not in document.data and any(key in document.data for key in marks)


def kind_of(name_or_path: str) -> str:
    """Whether a name or path stands for a `chip` or a `model`; a name that both have is the chip's."""
    for kind in FOLDERS:
        try:
            document = source.read(find(kind, name_or_path))
        except UnknownName:
            continue
        return _kind(document)
    raise UnknownName("chip or model", name_or_path, [name for kind in FOLDERS for name, _ in _names(kind)])


def _kind(document: source.Document) -> str:
    """`chip` or `model`, by content."""
    given = document.data.get("kind")
    if given in FOLDERS or given == "calibration":
        return str(given)
    if is_config(document):
        return "model"
    wanted = "'kind: chip', 'kind: model', or a Hugging Face config.json"
    if given is None:
        raise SpecError([document.problem((), "neither a chip nor a model", expected=wanted)])
    hint = did_you_mean(str(given), FOLDERS)
    raise SpecError([document.problem(("kind",), f"unknown kind '{given}'", expected=wanted, hint=hint)])


def chip_names() -> list[tuple[str, str]]:
    """(name, file) of every chip that can be asked for by name."""
    return _names("chip")


def model_names() -> list[tuple[str, str]]:
    """(name, file) of every model that can be asked for by name."""
    return _names("model")


def find(kind: str, name_or_path: str) -> str:
    """The file that a name or path of this kind stands for."""
    if not name_or_path.strip() or "\0" in name_or_path:
        raise UnknownName(kind, name_or_path.replace("\0", "\\0"), [name for name, _ in _names(kind)])
    path = _home(Path(name_or_path))
    looks_like_a_path = name_or_path.startswith((".", "~", "/")) or len(path.parts) > 1
    if looks_like_a_path or path.suffix.lower() in SUFFIXES or _is_file(path):
        config = path / "config.json"
        return str(config if _is_file(config) else path)
    known = dict(_names(kind))
    if name_or_path in known:
        return known[name_or_path]
    if _is_file(path / "config.json") and kind == "model":
        return str(path / "config.json")
    return _by_other_name(kind, name_or_path, known)


def _is_file(path: Path) -> bool:
    """Whether there is such a file; a name too long to be one is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def _home(path: Path) -> Path:
    """The path with `~` filled in, as it stands where no such user is known."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def _by_other_name(kind: str, name: str, known: dict[str, str]) -> str:
    """A file that lists `name` among the other names of its chip or model."""
    wanted = name.casefold()
    if exact := [stem for stem in known if stem.casefold() == wanted]:
        return known[exact[0]]
    also: dict[str, str] = {}  # other name -> stem
    for stem, file in known.items():
        try:
            data = source.read(file).data
        except SpecError:
            continue  # a broken file says so when it is asked for itself
        listed = data.get("names" if kind == "chip" else "served_names")
        for other in listed if isinstance(listed, list) else []:
            if str(other).casefold() == wanted:
                also[stem] = file
    if len(also) == 1:
        return next(iter(also.values()))
    if also:
        raise SpecError([Problem(name, None, None, f"names more than one {kind}", f"one of {', '.join(sorted(also))}")])
    raise UnknownName(kind, name, known)


def _names(kind: str) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for folder in folders(kind):
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                is_overlay = path.stem.endswith(OVERLAY)
                if path.suffix in (".yaml", ".yml") and not is_overlay and not path.name.startswith("."):
                    found.setdefault(path.stem, str(path))
    return sorted(found.items())


def folders(kind: str) -> list[Path]:
    """Where names of this kind are looked up, in order."""
    name = FOLDERS[kind]
    places = [Path(name)]
    repo = PACKAGE.parent
    if (repo / "pyproject.toml").is_file() and (repo / name).is_dir():
        places.append(repo / name)
    else:
        places.append(PACKAGE / "_data" / name)
    return places


def _refuse_other_kind(document: source.Document, kind: str) -> None:
    given = document.data.get("kind")
    if given == kind:
        return
    if given is None:
        problem = document.problem((), "missing key 'kind'", expected=f"kind: {kind}")
        if kind == "chip" and is_config(document):
            problem = document.problem((), "this is a model's config.json", expected="a chip file")
    elif given in FOLDERS:
        problem = document.problem(("kind",), f"this is a {given} file", expected=f"a {kind} file")
    else:
        hint = did_you_mean(str(given), [kind])
        problem = document.problem(("kind",), f"the kind is '{given}'", expected=f"'{kind}'", hint=hint)
    raise SpecError([problem])
