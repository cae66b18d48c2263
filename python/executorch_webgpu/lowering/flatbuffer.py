"""Reads and writes flatbuffers straight from their schema text: schema/graph.fbs is the only description there is.

Only what graph.fbs uses: enums, structs of scalars, tables of scalars, strings, tables and vectors of these.
tests/export/test_flatbuffer.py compares the result with flatc's.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import Any

import flatbuffers

_SCALARS = {  # name: (struct format, bytes, name in flatbuffers.Builder)
    "bool": ("?", 1, "Bool"),
    "byte": ("b", 1, "Int8"),
    "int32": ("i", 4, "Int32"),
    "uint32": ("I", 4, "Uint32"),
    "int64": ("q", 8, "Int64"),
    "uint64": ("Q", 8, "Uint64"),
    "double": ("d", 8, "Float64"),
}


class FormatError(ValueError):
    """The bytes are not what the schema says."""


@dataclass
class Field:
    name: str
    type: str
    vector: bool
    default: str | None


@dataclass
class Schema:
    """A parsed .fbs: enums by name → value, structs and tables by name → fields in order."""

    enums: dict[str, dict[str, int]] = field(default_factory=dict)
    structs: dict[str, list[Field]] = field(default_factory=dict)
    tables: dict[str, list[Field]] = field(default_factory=dict)
    root: str = ""
    identifier: bytes = b""

    @staticmethod
    def parse(text: str) -> Schema:
        schema = Schema()
        text = re.sub(r"//[^\n]*", "", text)
        for match in re.finditer(r"enum\s+(\w+)\s*:\s*byte\s*\{([^}]*)\}", text):
            members, value = {}, 0
            for part in filter(None, (p.strip() for p in match[2].split(","))):
                name, _, number = (p.strip() for p in part.partition("="))
                value = int(number) if number else value
                members[name] = value
                value += 1
            schema.enums[match[1]] = members
        for match in re.finditer(r"(struct|table)\s+(\w+)\s*\{([^}]*)\}", text):
            fields = []
            for name, type_, default in re.findall(r"(\w+)\s*:\s*(\[?\w+\]?)\s*(?:=\s*([\w.+-]+))?\s*;", match[3]):
                fields.append(Field(name, type_.strip("[]"), type_.startswith("["), default or None))
            (schema.structs if match[1] == "struct" else schema.tables)[match[2]] = fields
        schema.root = re.search(r"root_type\s+(\w+)", text)[1]
        schema.identifier = re.search(r'file_identifier\s+"(....)"', text)[1].encode()
        return schema

    def scalar(self, type_: str) -> tuple[str, int, str]:
        return _SCALARS["byte" if type_ in self.enums else type_]

    def is_scalar(self, type_: str) -> bool:
        return type_ in self.enums or type_ in _SCALARS

    def to_number(self, type_: str, value: Any) -> Any:
        return self.enums[type_][value] if type_ in self.enums else value

    def from_number(self, type_: str, value: Any) -> Any:
        if type_ not in self.enums:
            return value
        for name, number in self.enums[type_].items():
            if number == value:
                return name
        raise FormatError(f"{value} is not a member of enum {type_}")

    def default(self, f: Field) -> Any:
        """The default of a scalar field, as a number."""
        if f.type in self.enums:
            return self.enums[f.type][f.default] if f.default else 0
        if f.default is None:
            return False if f.type == "bool" else 0
        return {"true": True, "false": False}.get(f.default, None) if f.type == "bool" else int(f.default)

    def struct_layout(self, name: str) -> tuple[list[int], int, int]:
        """Offsets of the fields, size and alignment of a struct."""
        offsets, size, align = [], 0, 1
        for f in self.structs[name]:
            width = self.scalar(f.type)[1]
            size = -(-size // width) * width
            offsets.append(size)
            size, align = size + width, max(align, width)
        return offsets, -(-size // align) * align, align


def encode(schema: Schema, root: Any) -> bytes:
    """Serialises an object whose attributes are the fields of the root table (enums as names, None = absent)."""
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(_write_table(schema, builder, schema.root, root), file_identifier=schema.identifier)
    return bytes(builder.Output())


def _write_table(schema: Schema, builder: flatbuffers.Builder, table: str, obj: Any) -> int:
    fields = schema.tables[table]
    offsets = {}
    for f in fields:  # everything that is referred to comes before the table
        value = getattr(obj, f.name)
        if value is None or (not f.vector and (schema.is_scalar(f.type) or f.type in schema.structs)):
            continue
        if f.vector:
            offsets[f.name] = _write_vector(schema, builder, f.type, value) if len(value) else None
        elif f.type == "string":
            offsets[f.name] = builder.CreateString(value) if value else None
        else:
            offsets[f.name] = _write_table(schema, builder, f.type, value)
    builder.StartObject(len(fields))
    for slot, f in enumerate(fields):
        if offsets.get(f.name) is not None:
            builder.PrependUOffsetTRelativeSlot(slot, offsets[f.name], 0)
        elif not f.vector and schema.is_scalar(f.type):
            value = schema.to_number(f.type, getattr(obj, f.name))
            getattr(builder, f"Prepend{schema.scalar(f.type)[2]}Slot")(slot, value, schema.default(f))
    return builder.EndObject()


def _write_vector(schema: Schema, builder: flatbuffers.Builder, type_: str, items: list) -> int:
    if schema.is_scalar(type_):
        _, width, name = schema.scalar(type_)
        builder.StartVector(width, len(items), width)
        for item in reversed(items):
            getattr(builder, f"Prepend{name}")(schema.to_number(type_, item))
        return builder.EndVector()
    if type_ in schema.structs:
        offsets, size, align = schema.struct_layout(type_)
        builder.StartVector(size, len(items), align)
        for item in reversed(items):
            builder.Prep(align, size)
            end = size
            for f, offset in reversed(list(zip(schema.structs[type_], offsets, strict=True))):
                _, width, name = schema.scalar(f.type)
                builder.Pad(end - offset - width)
                getattr(builder, f"Prepend{name}")(schema.to_number(f.type, getattr(item, f.name)))
                end = offset
        return builder.EndVector()
    if type_ == "string":
        children = [builder.CreateString(item) for item in items]
    else:
        children = [_write_table(schema, builder, type_, item) for item in items]
    builder.StartVector(4, len(children), 4)
    for child in reversed(children):
        builder.PrependUOffsetTRelative(child)
    return builder.EndVector()


def decode(schema: Schema, data: bytes, classes: dict[str, type]) -> Any:
    """Reads a buffer into objects of `classes` (by table and struct name), made with fields as keyword arguments."""
    if len(data) < 8 or data[4:8] != schema.identifier:
        raise FormatError(f"not a payload: expected the identifier {schema.identifier!r}, found {bytes(data[4:8])!r}")
    return _Reader(schema, data, classes).table(schema.root, struct.unpack_from("<I", data, 0)[0])


class _Reader:
    def __init__(self, schema: Schema, data: bytes, classes: dict[str, type]):
        self.schema, self.data, self.classes = schema, data, classes

    def read(self, fmt: str, offset: int) -> Any:
        if offset < 0 or offset + struct.calcsize("<" + fmt) > len(self.data):
            raise FormatError(f"offset {offset} is outside of the payload's {len(self.data)} bytes")
        return struct.unpack_from("<" + fmt, self.data, offset)[0]

    def table(self, name: str, at: int) -> Any:
        vtable = at - self.read("i", at)
        slots = (self.read("H", vtable) - 4) // 2
        values = {}
        for slot, f in enumerate(self.schema.tables[name]):
            offset = self.read("H", vtable + 4 + 2 * slot) if slot < slots else 0
            values[f.name] = self.field(f, at + offset if offset else None)
        return self.classes[name](**values)

    def field(self, f: Field, at: int | None) -> Any:
        if f.vector:
            return self.vector(f.type, at + self.read("I", at)) if at is not None else []
        if self.schema.is_scalar(f.type):
            number = self.schema.default(f) if at is None else self.read(self.schema.scalar(f.type)[0], at)
            return self.schema.from_number(f.type, number)
        if f.type == "string":
            return self.string(at + self.read("I", at)) if at is not None else ""
        return self.table(f.type, at + self.read("I", at)) if at is not None else None

    def string(self, at: int) -> str:
        size = self.read("I", at)
        if at + 4 + size > len(self.data):
            raise FormatError(f"a string of {size} bytes at {at} is outside of the payload")
        return bytes(self.data[at + 4 : at + 4 + size]).decode()

    def vector(self, type_: str, at: int) -> list:
        count = self.read("I", at)
        if count > len(self.data):
            raise FormatError(f"a vector of {count} elements in a payload of {len(self.data)} bytes")
        start, schema = at + 4, self.schema
        if schema.is_scalar(type_):
            fmt, width, _ = schema.scalar(type_)
            return [schema.from_number(type_, self.read(fmt, start + i * width)) for i in range(count)]
        if type_ in schema.structs:
            offsets, size, _ = schema.struct_layout(type_)
            fields = list(zip(schema.structs[type_], offsets, strict=True))
            return [
                self.classes[type_](
                    **{
                        f.name: schema.from_number(f.type, self.read(schema.scalar(f.type)[0], start + i * size + o))
                        for f, o in fields
                    }
                )
                for i in range(count)
            ]
        places = [start + 4 * i + self.read("I", start + 4 * i) for i in range(count)]
        return [self.string(p) if type_ == "string" else self.table(type_, p) for p in places]
