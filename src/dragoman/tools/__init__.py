"""Typed functions as tools: a schema from the signature, arguments checked before the call, results as parts.

toolbox.py     what the agent loop asks of tools: RunnableTool, Toolbox
function.py    FunctionTool, @tool              collection.py  ToolCollection
signature.py   a callable -> its arguments      docstrings.py  what the docstring says
hints.py       a type hint, read                schemas.py     hints -> JSON Schema
records.py     classes with fields              values.py      JSON -> values of a hint
results.py     any value -> parts of a ToolResult
"""

from dragoman.tools.collection import ToolCollection, collect
from dragoman.tools.function import FunctionTool, tool
from dragoman.tools.results import File
from dragoman.tools.toolbox import RunnableTool, Toolbox

__all__ = ["File", "FunctionTool", "RunnableTool", "ToolCollection", "Toolbox", "collect", "tool"]
