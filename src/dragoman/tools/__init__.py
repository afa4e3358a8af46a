"""Typed functions as tools: a schema from the signature, arguments checked before the call, results as parts.

toolbox.py     Toolbox (what the agent loop needs), ToolCollection
function.py    FunctionTool, @tool: a callable as a tool
signature.py   the arguments of a callable      docstrings.py  descriptions from its docstring
hints.py       reads type hints                 records.py     reads classes with fields
schemas.py     hints -> JSON Schema             values.py      JSON -> values of a hint
results.py     any value -> parts of a ToolResult
"""

from dragoman.tools.function import FunctionTool, tool
from dragoman.tools.results import File
from dragoman.tools.toolbox import RunnableTool, Toolbox, ToolCollection, make_toolbox

__all__ = ["File", "FunctionTool", "RunnableTool", "ToolCollection", "Toolbox", "make_toolbox", "tool"]
