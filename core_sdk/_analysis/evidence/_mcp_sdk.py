"""The names that we need of the official SDK of the Model Context Protocol, which is an extra."""

from core_sdk.errors import MissingDependencyError

try:
    from mcp.server import MCPServer  # noqa: F401
    from mcp.server.mcpserver.exceptions import ToolError  # noqa: F401
    from mcp.types import ToolAnnotations  # noqa: F401
except ImportError as error:
    raise MissingDependencyError("the MCP SDK", "mcp", "`core-sdk mcp`") from error
