"""What the API pages show of docstrings and classes, beside what stands in the source."""

import re

import griffe

MODULES = ("Module", "AbstractRule", "AbstractDynamics")
EXAMPLE = re.compile(r"^( *)>>> .*(?:\n *\S.*)*", re.M)
OPTION = re.compile(r" *# doctest:.*")


class Docstrings(griffe.Extension):
    """Examples as blocks of code; Equinox modules with their fields as arguments."""

    def on_object(self, *, obj: griffe.Object, **others):
        if obj.docstring:
            block = lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```"
            obj.docstring.value = EXAMPLE.sub(block, OPTION.sub("", obj.docstring.value))

    def on_class(self, *, cls: griffe.Class, **others):
        bases = [str(base).rsplit(".", 1)[-1] for base in cls.bases]
        fields = [m for m in cls.attributes.values() if m.annotation is not None]
        if "__init__" not in cls.members and fields and any(base in MODULES for base in bases):
            cls.set_member("__init__", _init(fields))


def _init(fields: list[griffe.Attribute]) -> griffe.Function:
    plain = griffe.ParameterKind.positional_or_keyword
    arguments = [
        griffe.Parameter(m.name, annotation=m.annotation, kind=plain, default=_default(m))
        for m in fields
    ]
    own = griffe.Parameter("self", kind=plain)
    return griffe.Function("__init__", parameters=griffe.Parameters(own, *arguments))


def _default(field: griffe.Attribute) -> griffe.Expr | str | None:
    """The x of `name: type = x`, or of `name: type = eqx.field(default=x)`."""
    if not isinstance(field.value, griffe.ExprCall):
        return field.value
    named = [a for a in field.value.arguments if isinstance(a, griffe.ExprKeyword)]
    return next((a.value for a in named if a.name == "default"), None)
