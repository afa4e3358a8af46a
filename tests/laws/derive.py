"""Hypothesis strategies made from the Structs of `model/`: a field nobody has refined is drawn by its type.

A `Derivation` holds what a type alone cannot say: legal words for a field, fields that go together, a last touch to
the whole value. A new field needs nothing here unless its type is new too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields

Strategy: TypeAlias = st.SearchStrategy[Any]
Kind: TypeAlias = type[Struct]
Refined: TypeAlias = "Strategy | Callable[[Derivation], Strategy]"  # a callable asks for the strategies of Structs
Form: TypeAlias = Mapping[str, Refined]


class Derivation:
    """`types` are the strategies of plain types, `fields` of single fields. A Struct with `forms` is drawn as one of
    them: fields that depend on each other. `settle` gives a drawn value its last touch."""

    def __init__(
        self,
        types: Mapping[Any, Strategy],
        fields: Mapping[tuple[Kind, str], Refined],
        forms: Mapping[Kind, Sequence[Form]],
        settle: Mapping[Kind, Callable[[Any], Any]],
    ) -> None:
        self._types, self._fields, self._forms, self._settle = types, fields, forms, settle
        self._made: dict[Kind, Strategy] = {}
        self._check_names()

    def refine(
        self,
        *,
        types: Mapping[Any, Strategy] = {},
        fields: Mapping[tuple[Kind, str], Refined] = {},
        forms: Mapping[Kind, Sequence[Form]] = {},
        settle: Mapping[Kind, Callable[[Any], Any]] = {},
    ) -> "Derivation":
        """The same with other refinements for some."""
        return Derivation(
            {**self._types, **types}, {**self._fields, **fields}, {**self._forms, **forms}, {**self._settle, **settle}
        )

    def struct(self, kind: Kind) -> Strategy:
        """Any value of a Struct."""
        if kind not in self._made:
            self._made[kind] = st.deferred(lambda: self._build(kind))
        return self._made[kind]

    def one_of(self, *kinds: Kind) -> Strategy:
        return st.one_of(*(self.struct(kind) for kind in kinds))

    def changes(self, kind: Kind, name: str) -> Strategy:
        """Any value of one field but its default, with values of the fields that depend on it."""
        forms = [form for form in self._forms.get(kind, ()) if name in form] or [{}]
        drawn = st.one_of(*(st.fixed_dictionaries(self._drawn(kind, {*form, name}, form)) for form in forms))
        default = default_of(kind, name)
        return drawn.filter(lambda changes: changes[name] != default)

    def _plain(self, kind: Kind, name: str) -> Strategy:
        refined = self._fields.get((kind, name))
        if refined is not None:
            return self._ready(refined)
        return self._of(get_type_hints(kind)[name], f"{kind.__name__}.{name}")

    def _build(self, kind: Kind) -> Strategy:
        made = st.one_of(*(self._build_form(kind, form) for form in self._forms.get(kind, ({},))))
        return made.map(self._settle[kind]) if kind in self._settle else made

    def _build_form(self, kind: Kind, form: Form) -> Strategy:
        return st.builds(kind, **self._drawn(kind, kind.__struct_fields__, form))

    def _drawn(self, kind: Kind, names: Iterable[str], form: Form) -> dict[str, Strategy]:
        return {name: self._ready(form[name]) if name in form else self._plain(kind, name) for name in names}

    def _ready(self, refined: Refined) -> Strategy:
        return refined if isinstance(refined, st.SearchStrategy) else refined(self)

    def _of(self, hint: Any, owner: str) -> Strategy:
        """By type. `owner` is the field, for the error."""
        if hint in self._types:
            return self._types[hint]
        if hint is NoneType:
            return st.none()
        origin, inner = get_origin(hint), get_args(hint)
        if origin in (Union, UnionType):  # None first: hypothesis shrinks towards the first
            return st.one_of(*(self._of(choice, owner) for choice in sorted(inner, key=lambda x: x is not NoneType)))
        if origin is Literal:
            return st.sampled_from(inner)
        if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
            return st.lists(self._of(inner[0], owner), max_size=2).map(tuple)
        if isinstance(hint, type) and issubclass(hint, Struct):
            return self.struct(hint)
        raise TypeError(
            f"{owner}: no strategy is known for {hint}. Add the type to TYPES in tests/laws/strategies.py, "
            f"or a strategy for this field to FIELDS there."
        )

    def _check_names(self) -> None:
        named = {
            *self._fields,
            *((kind, name) for kind, forms in self._forms.items() for form in forms for name in form),
        }
        for kind, name in named:
            if name not in kind.__struct_fields__:
                raise TypeError(f"tests/laws/strategies.py refines {kind.__name__}.{name}, and there is no such field")


def default_of(kind: Kind, name: str) -> Any:
    """What a field is when nothing is said; NODEFAULT for one that must be said."""
    found = next(field for field in fields(kind) if field.name == name)
    return found.default_factory() if callable(found.default_factory) else found.default
