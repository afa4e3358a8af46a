"""MCP servers and their tools, as a Toolbox for the agent loop. https://modelcontextprotocol.io (read 2026-11-16)

spec.py            the entry of one server            registry.py    mcp.json on disk
servers.py         all servers; McpServers            toolbox.py     some servers as a Toolbox
connection.py      one server, kept connected         stdio.py       a server as a child process
http_client.py     the HTTP client of a server        network_policy.py  the addresses it may connect to
oauth.py           logins and tokens                  content.py     results, resources and prompts as parts
tool_listing.py    a tool as its server lists it      approvals.py   the approved tool texts
react.py           tools for models that only write text

The mcp package takes a second to load. Only connection.py and the modules that it uses import it, and they are imported
when a server is used for the first time.
"""
