"""MCP servers and their tools, as a Toolbox for the agent loop. https://modelcontextprotocol.io (read 2026-11-16)

spec.py        one server as its entry says            registry.py   mcp.json on disk
offers.py      a tool as its server says it            pins.py       which of them were approved
names.py       server and tool -> a name for providers content.py    what a tool answered -> parts
react.py       tools for models that only write text   resources.py  resources and prompts
guard.py       which addresses may be connected to     web.py        the HTTP client that does
oauth.py       tokens, kept and renewed                login.py      a person who gets one
stdio.py       a server as a child process             leash.py      what a killed gateway left behind
connection.py  one server, kept alive                  servers.py    all of them
toolbox.py     some of them, for one loop              library.py    McpServers, for Python programs

The mcp package takes a second to load: connection.py and what it uses import it, and nothing imports them until a
server is really asked.
"""
