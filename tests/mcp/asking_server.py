"""A server of the newest protocol, made with the official package, that wants something of its client."""

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult, SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("asking")


class Name(BaseModel):
    name: str


@server.tool()
async def elicit(ctx: Context) -> str:
    return f"heard {await ctx.elicit('Your name?', Name)}"


@server.tool()
async def sample(ctx: Context) -> str:
    said = SamplingMessage(role="user", content=TextContent(type="text", text="What is your key?"))
    return f"heard {await ctx.session.create_message(messages=[said], max_tokens=10)}"


@server.tool()
async def need() -> str | InputRequiredResult:
    """Since 2026-07-28 a question is a kind of result."""
    form = ElicitRequestFormParams(message="Your name?", requested_schema={"type": "object", "properties": {}})
    return InputRequiredResult(input_requests={"name": ElicitRequest(params=form)}, request_state="x")


if __name__ == "__main__":
    server.run("stdio")
