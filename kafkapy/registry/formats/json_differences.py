"""The differences of two JSON Schemas: which are harmless, and the sentence for each that is not."""

from typing import Final

from kafkapy.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference. `kind`: its name in Confluent's registry; `path`: its place, from the root of the schema."""

    kind: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        """Return the message of the registry; "%s" stands for "new" and "old", in this order."""
        return f'{{errorType:"{self.kind}", description:"{self._sentence()}\'}}'

    @property
    def pointer(self) -> str:
        return "#/" + "/".join(self.path)

    def _sentence(self) -> str:
        for kinds, sentence in _SENTENCES:
            if self.kind in kinds:
                return sentence.replace("{}", self.pointer)
        return ""


def _named(*groups: str) -> frozenset[str]:
    """Return names: "A_B|C" is A_B and A_C."""
    found = []
    for group in " ".join(groups).split():
        first, *others = group.split("|")
        stem = first.rpartition("_")[0]
        found += [first, *(f"{stem}_{each}" for each in others)]
    return frozenset(found)


COMPATIBLE: Final = _named(
    "ID_CHANGED DESCRIPTION_CHANGED TITLE_CHANGED DEFAULT_CHANGED SCHEMA_REMOVED TYPE_EXTENDED",
    "MAX_LENGTH_INCREASED|REMOVED MIN_LENGTH_DECREASED|REMOVED PATTERN_REMOVED",
    "MAXIMUM_INCREASED|REMOVED MINIMUM_DECREASED|REMOVED EXCLUSIVE_MAXIMUM_INCREASED|REMOVED",
    "EXCLUSIVE_MINIMUM_DECREASED|REMOVED MULTIPLE_OF_REDUCED|REMOVED",
    "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED REQUIRED_ATTRIBUTE_REMOVED",
    "DEPENDENCY_ARRAY_NARROWED|REMOVED DEPENDENCY_SCHEMA_REMOVED",
    "MAX_PROPERTIES_INCREASED|REMOVED MIN_PROPERTIES_DECREASED|REMOVED",
    "ADDITIONAL_PROPERTIES_ADDED|EXTENDED UNEVALUATED_PROPERTIES_ADDED|EXTENDED",
    "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
    "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
    "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "MAX_ITEMS_INCREASED|REMOVED MIN_ITEMS_DECREASED|REMOVED MAX_CONTAINS_INCREASED|REMOVED",
    "MIN_CONTAINS_DECREASED|REMOVED UNIQUE_ITEMS_REMOVED ADDITIONAL_ITEMS_ADDED|EXTENDED",
    "UNEVALUATED_ITEMS_ADDED|EXTENDED ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
    "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL ENUM_ARRAY_EXTENDED",
    "COMBINED_TYPE_EXTENDED PRODUCT_TYPE_NARROWED SUM_TYPE_EXTENDED NOT_TYPE_NARROWED",
)
LENIENT: Final = _named(
    "ADDITIONAL_PROPERTIES_NARROWED|REMOVED UNEVALUATED_PROPERTIES_NARROWED|REMOVED",
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
)


def harmless_kinds(*, lenient: bool) -> frozenset[str]:
    return COMPATIBLE | LENIENT if lenient else COMPATIBLE


_SENTENCES: Final = (
    (
        _named(
            "MAXIMUM_ADDED MINIMUM_ADDED EXCLUSIVE_MAXIMUM_ADDED EXCLUSIVE_MINIMUM_ADDED MULTIPLE_OF_ADDED",
            "MAX_LENGTH_ADDED MIN_LENGTH_ADDED PATTERN_ADDED REQUIRED_ATTRIBUTE_ADDED MAX_PROPERTIES_ADDED",
            "MIN_PROPERTIES_ADDED DEPENDENCY_ARRAY_ADDED DEPENDENCY_SCHEMA_ADDED MAX_ITEMS_ADDED MIN_ITEMS_ADDED",
            "MAX_CONTAINS_ADDED MIN_CONTAINS_ADDED UNIQUE_ITEMS_ADDED ADDITIONAL_ITEMS_REMOVED",
            "ADDITIONAL_PROPERTIES_REMOVED UNEVALUATED_PROPERTIES_REMOVED UNEVALUATED_ITEMS_REMOVED",
        ),
        "The keyword at path '{}' in the %s schema is not present in the %s schema",
    ),
    (
        _named(
            "MIN_LENGTH_INCREASED MINIMUM_INCREASED EXCLUSIVE_MINIMUM_INCREASED MIN_PROPERTIES_INCREASED",
            "MULTIPLE_OF_EXPANDED MIN_ITEMS_INCREASED MIN_CONTAINS_INCREASED",
        ),
        "The value at path '{}' in the %s schema is more than its value in the %s schema",
    ),
    (
        _named(
            "MAX_LENGTH_DECREASED MAXIMUM_DECREASED MAX_ITEMS_DECREASED MAX_CONTAINS_DECREASED",
            "EXCLUSIVE_MAXIMUM_DECREASED MAX_PROPERTIES_DECREASED",
        ),
        "The value at path '{}' in the %s schema is less than its value in the %s schema",
    ),
    (
        _named("PATTERN_CHANGED MULTIPLE_OF_CHANGED DEPENDENCY_ARRAY_CHANGED"),
        "The value at path '{}' is different between the %s and %s schema",
    ),
    (
        _named(
            "ADDITIONAL_ITEMS_NARROWED ENUM_ARRAY_NARROWED SUM_TYPE_NARROWED ADDITIONAL_PROPERTIES_NARROWED",
            "UNEVALUATED_PROPERTIES_NARROWED UNEVALUATED_ITEMS_NARROWED",
        ),
        "An array or combined type at path '{}' has fewer elements in the %s schema than the %s schema",
    ),
    (
        _named("DEPENDENCY_ARRAY_EXTENDED PRODUCT_TYPE_EXTENDED SUM_TYPE_EXTENDED NOT_TYPE_EXTENDED"),
        "An array or combined type at path '{}' has more elements in the %s schema than the %s schema",
    ),
    (
        _named("TYPE_CHANGED|NARROWED COMBINED_TYPE_CHANGED COMBINED_TYPE_SUBSCHEMAS_CHANGED ENUM_ARRAY_CHANGED"),
        "A type at path '{}' is different between the %s schema and the %s schema",
    ),
    (
        _named(
            "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL",
            "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL ITEM_ADDED_TO_OPEN_CONTENT_MODEL",
        ),
        "The %s schema has an open content model and has a property or item at path '{}' which is missing in the %s "
        "schema",
    ),
    (
        _named("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"),
        "The %s schema has an unopen content model and has a required property at path '{}' which is missing in the "
        "%s schema",
    ),
    (
        _named("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
        "The %s has a closed content model and is missing a property or item present at path '{}' in the %s schema",
    ),
    (
        _named(
            "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
            "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        ),
        "A property or item is missing in the %s schema but present at path '{}' in the %s schema and is not covered "
        "by its partially open content model",
    ),
    (
        _named(
            "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
            "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        ),
        "The %s schema has a property or item at path '{}' which is missing in the %s schema and is not covered by its "
        "partially open content model",
    ),
)
"""As Confluent's registry words them."""
