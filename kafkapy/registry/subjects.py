"""Subjects with their context: `name` is in the default context, `:.ctx:name` in the context `.ctx`.

Ids, modes and compatibility levels belong to a context. A context alone is `:.ctx:`, `:*:` all of them; `:.__GLOBAL:`
has the settings of all contexts.
"""

from typing import Final

from kafkapy.named_tuple import NamedTuple

DEFAULT_CONTEXT: Final = "."
GLOBAL_CONTEXT: Final = ".__GLOBAL"
WILDCARD: Final = ":*:"
_RESERVED: Final = ("__GLOBAL", "__EMPTY")


class Subject(NamedTuple):
    """`context` begins with a dot; "*" stands for all."""

    context: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "Subject":
        if text.startswith(":."):
            context, _, name = text[1:].partition(":")
            return cls(context, name)
        if text.startswith(WILDCARD):
            return cls("*", text[len(WILDCARD) :])
        return cls(DEFAULT_CONTEXT, text)

    @property
    def qualified_context(self) -> str:
        """`:.ctx:`, or "" for the default one."""
        return context_prefix(self.context)

    def __str__(self) -> str:
        return self.qualified_context + self.name

    @property
    def is_default_context(self) -> bool:
        """Whether this names the default context itself, and so the top level."""
        return self.context == DEFAULT_CONTEXT and not self.name


def context_prefix(context: str) -> str:
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def normalized(text: str) -> str:
    """Return a subject as it is stored: `:.:name` is `name`."""
    return str(Subject.parse(text))


def context_of(text: str | None) -> str:
    return DEFAULT_CONTEXT if text is None else Subject.parse(text).context


def qualified_by(parent: str, subject: str) -> str:
    """Return a reference's subject: without a context of its own it is in that of the schema that refers to it."""
    own = Subject.parse(subject)
    if own.context != DEFAULT_CONTEXT:
        return str(own)
    return str(Subject(context_of(parent), own.name))


def is_valid(text: str, *, is_of_settings: bool) -> bool:
    """Whether something can be registered, or set, under a subject."""
    subject = Subject.parse(text)
    if any(ord(each) < 32 or 127 <= ord(each) < 160 for each in text) or subject.name in _RESERVED:
        return False
    return is_of_settings or subject.context != GLOBAL_CONTEXT
