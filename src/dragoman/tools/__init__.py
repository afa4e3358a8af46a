"""Typed functions as tools: a schema from the signature, arguments checked before the call, results as parts.

toolbox.py     what the agent loop asks of tools: RunnableTool, Toolbox
function.py    FunctionTool, @tool              collection.py  ToolCollection
signature.py   a callable -> its arguments      hints.py       a type hint -> JSON Schema and conversion
docstrings.py  what the docstring says          results.py     any value -> parts of a ToolResult
"""

from dragoman.tools.collection import ToolCollection, collect
from dragoman.tools.function import FunctionTool, tool
from dragoman.tools.results import File
from dragoman.tools.toolbox import RunnableTool, Toolbox

__all__ = ["File", "FunctionTool", "RunnableTool", "ToolCollection", "Toolbox", "collect", "tool"]
