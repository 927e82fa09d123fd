"""What a tool of an MCP server answered, as text a model can read.

Invariant: nothing is dropped in silence. What is no text is described: its type and its size.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)


def text_of(result: CallToolResult) -> str:
    """The text of a result. Structured content stands for itself where no text says the same."""
    told = "\n\n".join(_parts(result.content))
    if result.structured_content is None:
        return told
    structured = json.dumps(result.structured_content, ensure_ascii=False)
    if any(_says(block, result.structured_content) for block in result.content):
        return told
    return "\n\n".join(part for part in (told, structured) if part)


def _says(block: ContentBlock, structured: object) -> bool:
    if not isinstance(block, TextContent):
        return False
    # A server that answers with one value wraps it for its structured form.
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        if structured["result"] == block.text:
            return True
        structured = structured["result"]
    try:
        return bool(json.loads(block.text) == structured)
    except ValueError:
        return False


def _parts(blocks: list[ContentBlock]) -> Iterator[str]:
    for block in blocks:
        match block:
            case TextContent():
                yield block.text
            case ImageContent() | AudioContent():
                yield f"[{block.type}: {block.mime_type}, {_bytes(block.data)} bytes, not shown]"
            case ResourceLink():
                size = f", {block.size} bytes" if block.size is not None else ""
                yield f"[link: {block.name}, {_place(str(block.uri))}{size}]"
            case EmbeddedResource():
                yield _resource(block)


def _resource(block: EmbeddedResource) -> str:
    resource = block.resource
    place, kind = _place(str(resource.uri)), resource.mime_type or "of unknown type"
    if isinstance(resource, BlobResourceContents):
        return f"[resource: {place}, {kind}, {_bytes(resource.blob)} bytes, not shown]"
    return f"[resource: {place}, {kind}]\n{resource.text}"


def _place(uri: str) -> str:
    """A URI as it may be shown: the whole of a file would stand in a data: one."""
    return "data:…" if urlsplit(uri).scheme == "data" else uri[:500]


def _bytes(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")
