"""Tools that a provider runs itself: its web search and the like, and MCP servers that it connects to."""
