"""Text that reads like an instruction to the reader.

Invariant: pure, and linear in the text. It marks what is to be shown as untrusted; it is no
defence by itself: labels and rules are what holds.
"""

from __future__ import annotations

import re

from perdure.search import fold

_SHELL = r"rm -|sudo\b|curl\b|wget\b|bash\b|powershell\b|eval\b|command\b|tool\b|script\b"
_PATTERNS = re.compile(
    "|".join(
        (
            r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}"
            r"\b(?:instructions?|prompts?|rules|guidelines|messages)\b",
            r"\b(?:new|updated|system|developer|hidden) (?:instructions?|prompt)\b",
            r"\byou (?:are|will) now\b|\bfrom now on,? you\b",
            r"\bact as (?:a|an|if)\b|\bpretend (?:to be|you)\b",
            r"\byou must (?:now|always|never|not|immediately)\b",
            r"\b(?:do not|don't|never) (?:tell|inform|mention|reveal|ask|alert) "
            r"(?:the |any)?(?:user|human|operator|owner|one)",
            rf"\b(?:run|execute|call|invoke)\b.{{0,20}}(?:`|\b(?:{_SHELL}))",
            r"\b(?:send|post|forward|upload|exfiltrate)\b.{0,60}"
            r"(?:https?://|\b(?:passwords?|credentials|secrets|api keys?|tokens?)\b)",
            r"</?(?:system|assistant|instructions?|im_start|im_end)\b|\[/?inst\]|<\|",
            r"^\s*(?:system|assistant|developer)\s*:",
            r"(?:以前|上記|これまで)の(?:指示|命令|プロンプト)を?(?:すべて)?(?:無視|忘れ)",
            r"忽略(?:之前|以上|所有|先前).{0,8}(?:指令|指示|提示)",
            r"\bignor(?:iere|ez|a|e)\b.{0,40}"
            r"\b(?:anweisungen|instructions|instrucciones|istruzioni)\b",
        )
    ),
    re.MULTILINE,
)


def reads_like_instruction(text: str) -> bool:
    """Whether a text tells its reader what to do, as prompt injections do."""
    return _PATTERNS.search(fold(text)) is not None
