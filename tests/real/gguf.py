"""Writes GGUF, llama.cpp's file format, with the standard library alone.
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (version 3)
"""

import struct
from array import array
from collections.abc import Sequence
from pathlib import Path

ALIGNMENT = 32
_U32, _I32, _F32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_HALF, _FLOAT = 1, 0  # types of tensors

Value = bool | int | float | str | list[str] | list[int]
Matrix = list[array]  # rows


def write_gguf(path: Path, fields: dict[str, Value], matrices: dict[str, Matrix], vectors: dict[str, array]) -> None:
    """Matrices are kept as halves, vectors as floats, as llama.cpp wants them."""
    tensors: list[tuple[str, tuple[int, ...], int, bytes]] = []
    for name, rows in matrices.items():
        data = b"".join(struct.pack(f"<{len(row)}e", *row) for row in rows)
        tensors.append((name, (len(rows[0]), len(rows)), _HALF, data))
    tensors += [(name, (len(v),), _FLOAT, struct.pack(f"<{len(v)}f", *v)) for name, v in vectors.items()]
    head = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)))
    for key, value in fields.items():
        head += _text(key) + _value(value)
    offset = 0
    for name, shape, kind, data in tensors:
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        offset += len(data) + -len(data) % ALIGNMENT
    with path.open("wb") as file:
        file.write(_padded(bytes(head)))
        for _, _, _, data in tensors:
            file.write(_padded(data))


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Value) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", _BOOL, value)
        case int():
            return struct.pack("<II", _U32, value)
        case float():
            return struct.pack("<If", _F32, value)
        case str():
            return struct.pack("<I", _STRING) + _text(value)
        case _:
            return _values(value)


def _values(values: Sequence[str] | Sequence[int]) -> bytes:
    texts = [value for value in values if isinstance(value, str)]
    if texts:
        return struct.pack("<IIQ", _ARRAY, _STRING, len(texts)) + b"".join(_text(text) for text in texts)
    numbers = [value for value in values if isinstance(value, int)]
    return struct.pack(f"<IIQ{len(numbers)}i", _ARRAY, _I32, len(numbers), *numbers)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)
