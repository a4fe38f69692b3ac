"""Tables of targets, options, limits, metrics and messages: read from the declarations that the program reads."""

from __future__ import annotations

import importlib

from edgekit import errors, registry
from edgekit.artifact import fact
from edgekit.artifact.metric import METRICS
from edgekit.artifact.option import as_text
from edgekit.judge.limits import ALL, SCALED, TABLE, TOLERANCES
from edgekit.target import Need, Target
from rendering.markdown import code, first_sentence, table

BUILT_IN = "edgekit"


def limits() -> str:
    """The rows of `edgekit/judge/limits.py`, one column a kind of precision."""
    rows = []
    for row in TABLE:
        roles = ", ".join(row.roles) if row.roles != SCALED else "all others"
        values = (_limit(value) for value in (row.fp32, row.delegated, row.fp16, row.int8, row.worst))
        rows.append((row.metric, roles, ", ".join(row.kinds) if row.kinds != ALL else "all", *values, row.reason))
    names = (tolerance.name for tolerance in TOLERANCES)
    return table(("metric", "of", "inputs", *names, "int8, any row", "why"), rows)


def metrics() -> str:
    """The rows of `edgekit/artifact/metric.py`."""
    heads = ("metric", "meaning", "better", "unit", "widened by noise")
    return table(heads, [(m.name, m.meaning, m.better, m.unit, _yes(m.widened)) for m in METRICS.values()])


def messages() -> str:
    """Every kind of fact and its sentence."""
    return table(("code", "sentence"), [(each.value, code(fact._SENTENCES[each])) for each in fact.Code])


def exceptions() -> str:
    """The tree of errors: a line a class, what it is a kind of, and when it is raised."""
    kinds = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    rows = [(code(k.__name__), code(k.__mro__[1].__name__), first_sentence(k.__doc__)) for k in kinds]
    return table(("error", "is a", "when"), rows)


def targets() -> str:
    """One line a built-in target: what it is, and what it is taken for."""
    heads = ("target", "makes", "made from", "judged in (limits)", "groups")
    rows = []
    for name, target in _built_in().items():
        groups = ", ".join(map(code, (*target.groups, registry.ALL)))
        rows.append((f"[`{name}`](#{name})", target.summary, code(target.source), _places(target), groups))
    chosen = [(code(n), a.use_case, a.proved_by, a.not_covered) for n, t in _built_in().items() for a in (t.about,)]
    return table(heads, rows) + "\n" + table(("target", "use it for", "verified in", "not covered"), chosen)


def options() -> str:
    """A section a built-in target: what its module says, what it needs, its options."""
    return "\n".join(_section(name, target) for name, target in _built_in().items())


def _section(name: str, target: Target) -> str:
    module = importlib.import_module(registry.available()[name].module)
    told = (module.__doc__ or "").strip()
    needs = ", ".join(dict.fromkeys(code(_install(need)) for need in target.needs)) or "nothing beyond edgekit itself"
    made = f"Made from {code(target.source)}. Needs {needs}. Judged in {_places(target)}."
    rows = [
        (code(f"{name}.{o.name}"), o.kind, code(as_text(o.default)) or "none", o.possible, o.help)
        for o in target.options
    ]
    declared = table(("option", "type", "default", "possible", "meaning"), rows) if rows else "It has no options.\n"
    return f"## {name}\n\n{told}\n\n{made}\n\n{declared}"


def _install(need: Need) -> str:
    """Return the command that a reader runs in the checkout; that of this host names its folder."""
    return f"pip install -e '.[{need.extra}]'" if need.extra and not need.hint else need.install


def _built_in() -> dict[str, Target]:
    """The built-in targets; what other packages add on this machine is no part of the documentation."""
    entries = registry.available()
    return {name: registry.find(name) for name, entry in entries.items() if entry.origin == BUILT_IN}


def _places(target: Target) -> str:
    return ", ".join(f"{code(place.name)} ({'; '.join(place.tolerances)})" for place in target.places)


def _limit(value: float | bool | None) -> str:
    if value is None:
        return "–"
    return _yes(value) if isinstance(value, bool) else f"{value:g}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
