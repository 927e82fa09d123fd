"""Lists of MCP tools: bounded, portable, never believed; and what their servers answer, as text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    TextContent,
    TextResourceContents,
)

from perdure.config.sources import SourceSettings
from perdure.domain.sources import SourceRef, ToolList, read_reference
from perdure.sources.contents import text_of
from perdure.sources.listing import LARGEST_LIST, LONGEST_NAME, MOST_TOOLS, Offered, listing
from perdure.sources.schemas import DEEPEST_SCHEMA, LARGEST_SCHEMA, Unfit, portable
from perdure.tools import Effect, select
from perdure.tools.sources import specs_of

PLAIN: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}


def offered(name: str, description: str = "Does it.", **more: Any) -> Offered:
    return Offered(name=name, description=description, schema=more.pop("schema", PLAIN), **more)


def listed(*tools: Offered, allowed: tuple[str, ...] = ("*",)) -> ToolList:
    return listing("shop", tools, allowed)


def reasons(found: ToolList) -> dict[str, str]:
    return {one.name: one.reason for one in found.left_out}


# Names ---------------------------------------------------------------------------------------


def test_names_are_prefixed_and_valid_for_every_provider() -> None:
    found = listed(offered("find.all"), offered("größe"), offered("x" * 200), offered("x" * 199))
    assert [tool.called for tool in found.tools[:2]] == ["shop__find_all", "shop__gr__e"]
    long = [tool.called for tool in found.tools[2:]]
    assert [len(name) for name in long] == [LONGEST_NAME] * 2
    assert long[0] != long[1]


def test_of_two_tools_with_one_name_the_second_is_left_out_and_told() -> None:
    found = listed(offered("a.b"), offered("a_b"), offered("a b"))
    assert [tool.name for tool in found.tools] == ["a.b"]
    assert reasons(found) == {
        "a_b": "its name, shop__a_b, is that of a.b too",
        "a b": "its name, shop__a_b, is that of a.b too",
    }


def test_only_allowed_tools_are_listed() -> None:
    found = listed(offered("find_one"), offered("drop"), allowed=("find_*", "list"))
    assert [tool.name for tool in found.tools] == ["find_one"]
    assert found.left_out == ()


# Bounds --------------------------------------------------------------------------------------


def test_a_description_is_cut_and_holds_nothing_that_a_person_would_not_see() -> None:
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    (tool,) = listed(offered("a", f"Reads\u200b mail.{hidden}\x1b[2J" + "x" * 5_000)).tools
    assert tool.description.startswith("Reads mail.[2J")
    assert len(tool.description) == 1_024


def test_a_server_with_too_many_or_too_large_tools_is_cut() -> None:
    many = listed(*(offered(f"t{number}") for number in range(MOST_TOOLS + 3)))
    assert len(many.tools) == MOST_TOOLS
    assert set(reasons(many)) == {f"t{MOST_TOOLS + number}" for number in range(3)}
    fat = {"type": "object", "properties": {"a": {"enum": ["y" * 12_000]}}}
    large = listed(*(offered(f"t{number}", schema=fat) for number in range(40)))
    assert len(large.tools) == LARGEST_LIST // 12_100
    assert "bytes in all" in next(iter(reasons(large).values()))


def test_the_same_list_has_the_same_digest_and_any_other_word_another_one() -> None:
    assert listed(offered("a")).digest == listed(offered("a")).digest
    assert listed(offered("a")).digest != listed(offered("a", "Does it!")).digest


# Schemas -------------------------------------------------------------------------------------


def test_references_are_replaced_by_what_they_refer_to() -> None:
    schema = {
        "type": "object",
        "properties": {"to": {"$ref": "#/$defs/Person", "description": "Who."}},
        "$defs": {"Person": {"type": "object", "properties": {"name": {"type": "string"}}}},
    }
    assert portable(schema) == {
        "type": "object",
        "properties": {
            "to": {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "description": "Who.",
            }
        },
    }


def test_a_schema_that_contains_itself_ends_where_it_begins_again() -> None:
    tree = {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#"}}},
    }
    inner = portable(tree)["properties"]["children"]["items"]
    assert inner["properties"]["children"]["items"] == {}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "array"}, "not an object"),
        ({"properties": {"a": {"$ref": "https://evil.example/x.json"}}}, "what is not in it"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "what is not in it"),
        ({"properties": {"a": {"enum": ["z" * LARGEST_SCHEMA]}}}, "bytes"),
        ({"properties": {"a": {"type": "no such type"}}}, r"wrong at \$\.properties\.a"),
        ({"properties": {"a": 5}}, "wrong at"),
        ({"required": "a"}, "wrong at"),
    ],
)
def test_a_schema_that_a_provider_would_choke_on_is_refused(
    schema: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Unfit, match=reason):
        portable(schema)


def test_a_schema_that_grows_without_end_is_refused_before_it_has_grown() -> None:
    # Each definition has the next one twice: thirty of them are a billion.
    defs: dict[str, Any] = {
        f"d{n}": {
            "properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}, "b": {"$ref": f"#/$defs/d{n + 1}"}}
        }
        for n in range(20)
    }
    defs["d20"] = {"type": "string"}
    with pytest.raises(Unfit, match=r"bytes|deeper"):
        portable({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "$ref", "enum", "anyOf", "required", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["type", "properties", "$defs", "$ref", "allOf"]), JSON))
def test_whatever_a_server_calls_a_schema_ends_in_a_portable_one_or_a_reason(
    schema: dict[str, Any],
) -> None:
    try:
        found = portable(schema)
    except Unfit:
        return
    assert found["type"] == "object"
    assert len(json.dumps(found)) < 2 * LARGEST_SCHEMA
    assert DEEPEST_SCHEMA > 0


# Trust ---------------------------------------------------------------------------------------


def test_a_servers_word_on_its_tools_counts_only_where_the_settings_say_so() -> None:
    lists = [listed(offered("a", read_only=True), offered("b", idempotent=True), offered("c"))]
    wanted = [SourceRef(server="shop")]

    def effects(**more: Any) -> list[Effect]:
        settings = {"shop": SourceSettings(command="x", **more)}
        return [spec.effect for spec in specs_of(lists, wanted, settings).values()]

    assert effects() == [Effect.ONCE] * 3
    assert effects(trust_hints=True) == [Effect.READ, Effect.IDEMPOTENT, Effect.ONCE]
    assert effects(read_only=["c"]) == [Effect.ONCE, Effect.ONCE, Effect.READ]
    assert effects(idempotent=["*"]) == [Effect.IDEMPOTENT] * 3


def test_an_agent_has_of_a_server_what_its_settings_name() -> None:
    lists = [listed(offered("a"), offered("b"))]
    toolbox = select(["mcp:shop/a", "read"])
    assert list(toolbox.specs) == ["read"]
    settings = {"shop": SourceSettings(command="x")}
    assert list(specs_of(lists, toolbox.sources, settings)) == ["shop__a"]
    assert specs_of(lists, toolbox.sources, {}) == {}
    assert read_reference("module:function") is None


# Answers -------------------------------------------------------------------------------------


def test_what_a_server_answers_is_told_whole_and_once() -> None:
    said = TextContent(text='{"rooms": 3}')
    once = CallToolResult(content=[said], structured_content={"rooms": 3})
    assert text_of(once) == '{"rooms": 3}'
    wrapped = CallToolResult(content=[TextContent(text="3")], structured_content={"result": 3})
    assert text_of(wrapped) == "3"
    other = CallToolResult(content=[TextContent(text="Fine.")], structured_content={"rooms": 3})
    assert text_of(other) == 'Fine.\n\n{"rooms": 3}'
    assert text_of(CallToolResult(content=[], structured_content=None)) == ""


def test_what_is_no_text_is_described() -> None:
    blob = BlobResourceContents(uri="file:///a.pdf", mime_type="application/pdf", blob="AAAA")
    words = TextResourceContents(uri="file:///a.txt", text="hello")
    result = CallToolResult(
        content=[EmbeddedResource(resource=blob), EmbeddedResource(resource=words)]
    )
    assert text_of(result) == (
        "[resource: file:///a.pdf, application/pdf, 3 bytes, not shown]\n\n"
        "[resource: file:///a.txt, of unknown type]\nhello"
    )
