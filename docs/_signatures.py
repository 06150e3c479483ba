"""Signatures of Equinox modules, whose fields are their arguments, for the API pages."""

import griffe

BASES = ("Module", "AbstractRule", "AbstractDynamics")


class Signatures(griffe.Extension):
    """Gives a module the `__init__` that Equinox would give it."""

    def on_class(self, *, cls: griffe.Class, **others):
        bases = [str(base).rsplit(".", 1)[-1] for base in cls.bases]
        fields = [m for m in cls.attributes.values() if m.annotation is not None]
        if "__init__" not in cls.members and fields and any(base in BASES for base in bases):
            plain = griffe.ParameterKind.positional_or_keyword
            arguments = [griffe.Parameter("self", kind=plain)]
            arguments += [
                griffe.Parameter(m.name, annotation=m.annotation, kind=plain, default=_default(m))
                for m in fields
            ]
            init = griffe.Function("__init__", parameters=griffe.Parameters(*arguments))
            cls.set_member("__init__", init)


def _default(field: griffe.Attribute):
    """x of `name = x`, or of `name = eqx.field(default=x)`."""
    if not isinstance(field.value, griffe.ExprCall):
        return field.value
    named = [a for a in field.value.arguments if isinstance(a, griffe.ExprKeyword)]
    return next((a.value for a in named if a.name == "default"), None)
