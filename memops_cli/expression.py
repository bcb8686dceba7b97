"""Reads a call such as `copy(f32[8192, 8192].t())` into an op's name and meta tensors.

The text is parsed with `ast` and interpreted node by node; nothing in it is executed. Tensors are
`dtype[sizes]`, and views of them: indexing, the attributes and methods named below.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import torch

DTYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
    "u8": torch.uint8, "u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64,
    "bool": torch.bool, "c32": torch.complex32, "c64": torch.complex64, "c128": torch.complex128,
    "f8_e4m3fn": torch.float8_e4m3fn, "f8_e5m2": torch.float8_e5m2,
}  # fmt: skip

ATTRIBUTES = ("T", "mT", "H", "mH")
METHODS = (
    "as_strided", "broadcast_to", "conj", "diagonal", "expand", "flatten", "movedim", "narrow",
    "permute", "select", "squeeze", "swapaxes", "t", "transpose", "unflatten", "unfold",
    "unsqueeze", "view",
)  # fmt: skip

ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
LARGEST = 2**63 - 1


class ExpressionError(ValueError):
    """The text is no call that can be planned; the message says what is wrong, and where."""


def parse_call(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """The op's name, the arguments and the keyword arguments of a call; tensors are meta tensors.

    Raises ExpressionError.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f" (column {error.offset})" if isinstance(error, SyntaxError) else ""
        raise ExpressionError(f"{text!r} cannot be read{where}: {_reason(error)}") from error
    if not isinstance(tree, ast.Call):
        raise ExpressionError(f"expected a call like copy(f32[8192,8192].t()), got {text!r}")
    if not isinstance(tree.func, ast.Name):
        raise ExpressionError(f"expected an op's name, got {ast.unparse(tree.func)!r}")
    try:
        arguments = [_value(node) for node in tree.args]
        keywords = {}
        for keyword in tree.keywords:
            if keyword.arg is None:
                raise ExpressionError("** is not understood here")
            keywords[keyword.arg] = _value(keyword.value)
    except RecursionError as error:
        raise ExpressionError("the expression is nested too deeply") from error
    return tree.func.id, arguments, keywords


def _reason(error: BaseException) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return node.value
        case ast.List(elts=elements):
            return [_value(element) for element in elements]
        case ast.Tuple(elts=elements):
            return tuple(_value(element) for element in elements)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = _value(operand)
            if isinstance(number, (int, float)):
                return -number
        case ast.BinOp():
            return _arithmetic(node)
        case ast.Subscript(value=ast.Name(id=name), slice=sizes):
            return _tensor(node, name, sizes)
        case ast.Subscript(value=base, slice=index):
            return _view(node, _tensor_at(base), lambda tensor: tensor[_index(index)])
        case ast.Attribute(value=base, attr=attribute):
            if attribute in METHODS:
                raise ExpressionError(f"{ast.unparse(node)!r}: {attribute} needs parentheses")
            if attribute not in ATTRIBUTES:
                raise ExpressionError(
                    f"{ast.unparse(node)!r}: .{attribute} is not understood; known are "
                    f"{', '.join(ATTRIBUTES)} and the methods {', '.join(METHODS)}"
                )
            return _view(node, _tensor_at(base), lambda tensor: getattr(tensor, attribute))
        case ast.Call(func=ast.Attribute(value=base, attr=method), args=args, keywords=keywords):
            if method not in METHODS:
                raise ExpressionError(
                    f"{ast.unparse(node)!r}: .{method}() is not understood; known are "
                    f"{', '.join(METHODS)}"
                )
            values = [_value(argument) for argument in args]
            named = {keyword.arg or "**": _value(keyword.value) for keyword in keywords}
            return _view(
                node, _tensor_at(base), lambda tensor: getattr(tensor, method)(*values, **named)
            )
    raise ExpressionError(
        f"{ast.unparse(node)!r} is not understood; an argument is a tensor (f32[1024,3]), a view "
        "of one (f32[8,4].t()), a number, a list, a string, True, False or None"
    )


def _arithmetic(node: ast.BinOp) -> int:
    left, right = _value(node.left), _value(node.right)
    if type(left) is int and type(right) is int:
        if isinstance(node.op, ast.Pow) and 0 <= right < 64 and abs(left) <= LARGEST:
            result = left**right
        elif type(node.op) in ARITHMETIC and not (isinstance(node.op, ast.FloorDiv) and not right):
            result = ARITHMETIC[type(node.op)](left, right)
        else:
            raise ExpressionError(f"{ast.unparse(node)!r} cannot be computed")
        if abs(result) > LARGEST:
            raise ExpressionError(f"{ast.unparse(node)!r} is larger than 2**63 - 1")
        return result
    raise ExpressionError(f"{ast.unparse(node)!r}: arithmetic is for whole numbers only")


def _tensor(node: ast.expr, dtype: str, sizes_node: ast.expr) -> torch.Tensor:
    if dtype not in DTYPES:
        raise ExpressionError(f"unknown dtype {dtype!r}; known are {', '.join(DTYPES)}")
    sizes = _value(sizes_node)
    sizes = sizes if isinstance(sizes, tuple) else (sizes,)
    if not all(type(size) is int and size >= 0 for size in sizes):
        raise ExpressionError(f"{ast.unparse(node)!r}: sizes are whole numbers from 0 on")
    return _view(node, torch.empty(0, dtype=DTYPES[dtype], device="meta"),
                 lambda tensor: tensor.new_empty(sizes))  # fmt: skip


def _tensor_at(node: ast.expr) -> torch.Tensor:
    value = _value(node)
    if not isinstance(value, torch.Tensor):
        raise ExpressionError(f"{ast.unparse(node)!r} is no tensor; write one as f32[1024,3]")
    return value


def _index(node: ast.expr) -> Any:
    match node:
        case ast.Slice(lower=lower, upper=upper, step=step):
            return slice(*(None if part is None else _value(part) for part in (lower, upper, step)))
        case ast.Tuple(elts=elements):
            return tuple(_index(element) for element in elements)
        case ast.Constant(value=value) if value is Ellipsis:
            return Ellipsis
        case _:
            value = _value(node)
            if value is None or type(value) is int:
                return value
    raise ExpressionError(f"index {ast.unparse(node)!r}: expected numbers, slices, ... or None")


def _view(
    node: ast.expr, tensor: torch.Tensor, take: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    try:
        return take(tensor)
    except (RuntimeError, IndexError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, ExpressionError):
            raise
        raise ExpressionError(f"{ast.unparse(node)!r}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]
