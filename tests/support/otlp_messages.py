"""OpenTelemetry's metrics messages by Google's protobuf: an encoder and decoder that is not ours."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

TYPES = {
    "string": 9,
    "bytes": 12,
    "bool": 8,
    "int64": 3,
    "fixed64": 6,
    "sfixed64": 16,
    "double": 1,
    "enum": 5,
    "uint32": 13,
    "sint32": 17,
    "uint64": 4,
}
MESSAGES = {
    "MetricsData": [("resource_metrics", 1, "*ResourceMetrics")],
    "ResourceMetrics": [
        ("resource", 1, "Resource"),
        ("scope_metrics", 2, "*ScopeMetrics"),
        ("schema_url", 3, "string"),
    ],
    "Resource": [("attributes", 1, "*KeyValue"), ("dropped_attributes_count", 2, "uint32")],
    "ScopeMetrics": [("metrics", 2, "*Metric"), ("schema_url", 3, "string")],
    "Metric": [
        ("name", 1, "string"),
        ("description", 2, "string"),
        ("unit", 3, "string"),
        ("gauge", 5, "Gauge"),
        ("sum", 7, "Sum"),
        ("histogram", 9, "Histogram"),
        ("exponential_histogram", 10, "ExponentialHistogram"),
        ("summary", 11, "Summary"),
    ],
    "Gauge": [("data_points", 1, "*NumberDataPoint")],
    "Sum": [
        ("data_points", 1, "*NumberDataPoint"),
        ("aggregation_temporality", 2, "enum"),
        ("is_monotonic", 3, "bool"),
    ],
    "Histogram": [("data_points", 1, "*HistogramDataPoint"), ("aggregation_temporality", 2, "enum")],
    "ExponentialHistogram": [("data_points", 1, "*ExponentialDataPoint"), ("aggregation_temporality", 2, "enum")],
    "Summary": [("data_points", 1, "*SummaryDataPoint")],
    "NumberDataPoint": [
        ("start_time_unix_nano", 2, "fixed64"),
        ("time_unix_nano", 3, "fixed64"),
        ("as_double", 4, "double"),
        ("as_int", 6, "sfixed64"),
        ("attributes", 7, "*KeyValue"),
        ("flags", 8, "uint32"),
    ],
    "HistogramDataPoint": [
        ("time_unix_nano", 3, "fixed64"),
        ("count", 4, "fixed64"),
        ("sum", 5, "double"),
        ("bucket_counts", 6, "*fixed64"),
        ("explicit_bounds", 7, "*double"),
        ("attributes", 9, "*KeyValue"),
    ],
    "ExponentialDataPoint": [
        ("attributes", 1, "*KeyValue"),
        ("time_unix_nano", 3, "fixed64"),
        ("count", 4, "fixed64"),
        ("sum", 5, "double"),
        ("scale", 6, "sint32"),
        ("zero_count", 7, "fixed64"),
        ("positive", 8, "Buckets"),
        ("negative", 9, "Buckets"),
    ],
    "Buckets": [("offset", 1, "sint32"), ("bucket_counts", 2, "*uint64")],
    "SummaryDataPoint": [
        ("time_unix_nano", 3, "fixed64"),
        ("count", 4, "fixed64"),
        ("sum", 5, "double"),
        ("attributes", 7, "*KeyValue"),
    ],
    "KeyValue": [("key", 1, "string"), ("value", 2, "AnyValue")],
    "AnyValue": [
        ("string_value", 1, "string"),
        ("bool_value", 2, "bool"),
        ("int_value", 3, "int64"),
        ("double_value", 4, "double"),
        ("bytes_value", 7, "bytes"),
    ],
}
"""Field, number and type of each message; * means repeated."""
PACKAGE = "otlp"
PRESENT = {"as_double", "as_int", "sum", "string_value", "bool_value", "int_value", "double_value"}
"""Fields whose default is written, too, if it was set."""


@cache
def message(name: str) -> Any:
    """Return the class of a message."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def metrics_data(*metrics: Any, resource: Mapping[str, str] | None = None) -> bytes:
    """Return encoded MetricsData with one resource and one scope."""
    data = message("MetricsData")()
    of_resource = data.resource_metrics.add()
    add_attributes(of_resource.resource, resource or {})
    of_resource.scope_metrics.add().metrics.extend(metrics)
    return bytes(data.SerializeToString())


def gauge(name: str, value: float, **attributes: str) -> Any:
    metric = message("Metric")(name=name)
    point = metric.gauge.data_points.add(time_unix_nano=1, as_double=value)
    add_attributes(point, attributes)
    return metric


def counter(name: str, value: int, *, temporality: int = 1, **attributes: str) -> Any:
    """Return a monotonic sum; temporality 1: of what came since the last one, 2: of all."""
    metric = message("Metric")(name=name)
    point = metric.sum.data_points.add(time_unix_nano=1, as_int=value)
    metric.sum.aggregation_temporality = temporality
    metric.sum.is_monotonic = True
    add_attributes(point, attributes)
    return metric


def add_attributes(owner: Any, attributes: Mapping[str, str]) -> None:
    for key, value in attributes.items():
        owner.attributes.add(key=key).value.string_value = value


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="metrics.proto", package=PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        described = file.message_type.add(name=name)
        for field, number, kind in fields:
            _add_field(described, field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call]
    return pool


def _add_field(described: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str) -> None:
    plain = kind.removeprefix("*")
    field = described.field.add(name=name, number=number, label=3 if kind != plain else 1)
    if plain in TYPES:
        field.type = TYPES[plain]
        if name in PRESENT and kind == plain:
            field.proto3_optional = True
            field.oneof_index = len(described.oneof_decl)
            described.oneof_decl.add(name=f"_{name}")
    else:
        field.type, field.type_name = 11, f".{PACKAGE}.{plain}"
