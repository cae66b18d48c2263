"""The list of operators that a delegate may contain."""

from .registry import Operator, find_schema, load_operators, why_not_on_cpu

__all__ = ["Operator", "find_schema", "load_operators", "why_not_on_cpu"]
