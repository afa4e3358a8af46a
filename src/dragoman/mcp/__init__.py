"""MCP servers and their tools, as a Toolbox for the agent loop. https://modelcontextprotocol.io (read 2026-11-16)

spec.py        one server as its entry says            registry.py   mcp.json on disk
pins.py        which tool texts were approved          names.py      server and tool -> a name every provider takes
content.py     what a tool answered -> parts           react.py      tools for models that only write text
stdio.py       a server as a child process             connection.py one server, kept alive (loads the mcp package)
servers.py     all of them                             toolbox.py    some of them, for one loop
library.py     McpServers, for Python programs         leash.py      what a killed gateway left behind

The mcp package takes a second to load: only connection.py and stdio.py import it, and nothing imports them until a
server is really asked.
"""
