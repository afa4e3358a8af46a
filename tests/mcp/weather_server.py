"""A server made with the official package: the weather, which is always the same."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("weather")


@server.tool()
def get_weather(city: str, unit: str = "c") -> str:
    """The weather in a city."""
    return f"It is raining in {city}, at 11 {unit.upper()}."


if __name__ == "__main__":
    server.run("stdio")
