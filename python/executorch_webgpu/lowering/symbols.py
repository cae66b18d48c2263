"""Symbolic sizes: from sympy to the payload's table of integer expressions."""

from __future__ import annotations

from typing import Any

import sympy
import torch

from .payload import Expr, Symbol

_INT64_MAX = 2**63 - 1
# What an unbounded symbol gets. Buffers are sized at the bounds: such a model is refused at load with a clear message.
UNBOUNDED = 2**31 - 1


class UnsupportedExpression(ValueError):
    """A size expression that the payload cannot hold."""


def to_sympy(value: Any) -> sympy.Expr:
    """The expression of an int, SymInt or sympy integer."""
    if isinstance(value, torch.SymInt):
        return value.node.expr
    return sympy.sympify(value)


def linear_in(expr: sympy.Expr, symbol: sympy.Symbol) -> tuple[int, int] | None:
    """(a, b) where the expression is a · symbol + b with integers, or None."""
    if expr.free_symbols != {symbol}:
        return None
    slope, rest = expr.coeff(symbol), expr.subs(symbol, 0)
    if not (slope.is_Integer and rest.is_Integer) or sympy.expand(slope * symbol + rest - expr) != 0:
        return None
    return int(slope), int(rest)


class ExprTable:
    """Builds Graph.exprs and Graph.symbols. Equal expressions share an index.

    ranges: inclusive (min, max) by the symbol's name.
    """

    def __init__(self, ranges: dict[str, tuple[int, int]]):
        self.exprs: list[Expr] = []
        self.symbols: list[Symbol] = []
        self._ranges = ranges
        self._index: dict[tuple, int] = {}
        self._bound: dict[sympy.Symbol, tuple] = {}  # where a symbol could come from
        self._symbol_exprs: dict[sympy.Symbol, int] = {}

    def bind_inputs(self, inputs: list[Any]) -> None:
        """Tells where symbols come from: `inputs` are the meta values of the delegate's inputs in order.

        A dimension s serves s; a dimension a·s + b serves s as (dim − b) // a where nothing simpler is there.
        """
        places = []  # (expression, source, input, dim)
        for position, value in enumerate(inputs):
            if isinstance(value, torch.Tensor):
                places += [(to_sympy(d), "input_dim", position, i) for i, d in enumerate(value.shape)]
            elif isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
                places.append((to_sympy(value), "input_int", position, 0))
        for expr, *place in places:
            if expr.is_Symbol:
                self._bound.setdefault(expr, (expr, *place))
        for expr, *place in places:
            free = list(expr.free_symbols)
            if len(free) == 1 and free[0] not in self._bound:
                if linear_in(expr, free[0]):
                    self._bound[free[0]] = (expr, *place)

    def unbound(self, value: Any) -> set[str]:
        """Names of the symbols of an int that no input gives."""
        return {str(s) for s in to_sympy(value).free_symbols if s not in self._bound}

    def range_of(self, symbol: sympy.Symbol) -> tuple[int, int]:
        low, high = self._ranges.get(str(symbol), (0, UNBOUNDED))
        return low, high

    def add(self, value: Any) -> int:
        """Index of the expression of an int, SymInt or sympy expression."""
        return self._lower(to_sympy(value))

    # ---- helpers -------------------------------------------------------------------------------------------------
    def _push(self, op: str, a: int = 0, b: int = 0, value: int = 0) -> int:
        key = (op, a, b, value)
        if key not in self._index:
            self._index[key] = len(self.exprs)
            self.exprs.append(Expr(op, a, b, value))
        return self._index[key]

    def _constant(self, value: int) -> int:
        if not -_INT64_MAX - 1 <= value <= _INT64_MAX:
            raise UnsupportedExpression(f"{value} does not fit 64 bits")
        return self._push("constant", value=int(value))

    def _symbol(self, symbol: sympy.Symbol) -> int:
        if symbol in self._symbol_exprs:
            return self._symbol_exprs[symbol]
        if symbol not in self._bound:
            raise UnsupportedExpression(f"no input gives the size {symbol}")
        expr, source, position, dim = self._bound[symbol]
        low, high = self.range_of(symbol)
        if expr.is_Symbol:
            self.symbols.append(Symbol(str(symbol), low, high, source, position, dim))
            index = self._push("symbol", a=len(self.symbols) - 1)
        else:
            slope, rest = linear_in(expr, symbol)
            ends = sorted((slope * low + rest, slope * high + rest))
            self.symbols.append(Symbol(f"{symbol}_dim", *ends, source, position, dim))
            index = self._push("symbol", a=len(self.symbols) - 1)
            if rest:
                index = self._push("sub", index, self._constant(rest))
            index = self._push("floordiv", index, self._constant(slope))
        self._symbol_exprs[symbol] = index
        return index

    def _fold(self, op: str, indices: list[int]) -> int:
        result = indices[0]
        for index in indices[1:]:
            result = self._push(op, result, index)
        return result

    def _lower(self, e: sympy.Expr) -> int:
        if e.is_Integer:
            return self._constant(int(e))
        if e.is_Symbol:
            return self._symbol(e)
        name = e.func.__name__
        if name in ("FloorDiv", "CleanDiv", "IntTrueDiv"):
            return self._push("floordiv", self._lower(e.args[0]), self._lower(e.args[1]))
        if name in ("Mod", "PythonMod"):
            return self._push("mod", self._lower(e.args[0]), self._lower(e.args[1]))
        if name in ("Max", "Min"):
            return self._fold(name.lower(), [self._lower(a) for a in sorted(e.args, key=str)])
        if e.is_Pow and e.exp.is_Integer and 0 < int(e.exp) <= 8:
            return self._fold("mul", [self._lower(e.base)] * int(e.exp))
        if e.is_Add or e.is_Mul:
            numerator, denominator = sympy.fraction(sympy.together(e))
            if denominator != 1:
                if not denominator.is_Integer:
                    raise UnsupportedExpression(f"size expression {e}")
                return self._push("floordiv", self._lower(numerator), self._constant(int(denominator)))
            return self._sum(e) if e.is_Add else self._fold("mul", [self._lower(a) for a in e.args])
        raise UnsupportedExpression(f"size expression {e} ({name})")

    def _sum(self, e: sympy.Expr) -> int:
        """a + b − c, without multiplying by −1."""
        positive, negative = [], []
        for term in sorted(e.args, key=lambda t: (t.is_number, str(t))):
            (negative if term.could_extract_minus_sign() else positive).append(term)
        if not positive:
            positive = [sympy.Integer(0)]
        result = self._fold("add", [self._lower(t) for t in positive])
        for term in negative:
            result = self._push("sub", result, self._lower(-term))
        return result


def why_not(value: Any) -> str | None:
    """Why an int or SymInt cannot stand in a payload wherever its symbols come from, or None."""
    expr = to_sympy(value)
    table = ExprTable({})
    table._bound = {s: (s, "input_int", 0, 0) for s in expr.free_symbols}
    try:
        table.add(expr)
    except UnsupportedExpression as error:
        return str(error)
    return None
