"""Constants among the columns to publish, found in Spark's plan in the driver.

Spark tells a Python sink the schema only, so the sink can refuse a value only in a task, after the job has begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from jumpmq.spark.as_given import as_encoded
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.publishable import check_publishable
from jumpmq.spark.schema import PROPERTIES


def check_rows(frame: DataFrame) -> None:
    """Check columns and constants of a DataFrame without running it, as the sink does.

    Over Spark Connect, where the plan is unknown, only columns are checked. Streaming queries are checked at their
    start if :func:`jumpmq.spark.register` was called.

    Raises:
        JumpMQError: a column is missing, unknown or of another type, or a constant is out of range.
    """
    check_publishable(frame.schema, True, True)
    try:
        plan: Any = frame._jdf.queryExecution().analyzed()
    except PySparkException:
        return
    if (reason := problem_with(plan)) is not None:
        raise JumpMQError(reason)


def problem_with(plan: Any) -> str | None:
    """Return the reason to refuse a constant property of a plan of the JVM; None if all may be published."""
    for name, value in _constants(plan):
        try:
            as_encoded(pa.record_batch({name: pa.array([value])}))
        except JumpMQError as error:
            return str(error).replace("a row's", "the column", 1)
    return None


def _constants(plan: Any) -> Iterator[tuple[str, int]]:
    """Yield name and value of the properties that are the same integer in all rows."""
    named, output = _named(plan), plan.output()
    for place in range(output.size()):
        attribute = output.apply(place)
        expression = _resolved(attribute, named)
        found = [(attribute.name(), expression)]
        if attribute.name() == "properties" and _kind(expression) == "CreateNamedStruct":
            names, values = expression.nameExprs(), expression.valExprs()
            found = [(str(names.apply(at).eval(None)), values.apply(at)) for at in range(names.size())]
        for name, one in found:
            if name in PROPERTIES.names and (one := _resolved(one, named)).foldable():
                value = one.eval(None)
                if isinstance(value, int) and not isinstance(value, bool):
                    yield name, value


def _named(plan: Any) -> dict[int, Any]:
    """Return the expressions named by projections, by the id of the attribute, down to a source or to the first node
    with several children.
    """
    found: dict[int, Any] = {}
    while True:
        if _kind(plan) == "Project":
            listed = plan.projectList()
            for place in range(listed.size()):
                one = listed.apply(place)
                if _kind(one) == "Alias":
                    found[one.exprId().id()] = one.child()
        below = plan.children()
        if below.size() != 1:
            return found
        plan = below.apply(0)


def _resolved(expression: Any, named: dict[int, Any]) -> Any:
    while _kind(expression) == "AttributeReference" and expression.exprId().id() in named:
        expression = named[expression.exprId().id()]
    return expression


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())
