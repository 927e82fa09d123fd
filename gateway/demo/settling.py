"""The scene in which two agents settle something, and a third tries to close a ring of waits.

Invariant: what was said is shown as the sender's call returned it, and the refusal as the one who
was refused read it.
"""

from __future__ import annotations

import json
from typing import Any

from gateway.demo.cast import EDITOR, LEAD, PRINTER
from gateway.demo.crew import Crew
from gateway.demo.directives import words_of
from gateway.demo.story import Settling
from perdure.domain.messages import Role


async def play(crew: Crew, settling: Settling) -> None:
    """Have the lead and the editor talk, the editor ask the printer, the printer ask the lead."""
    for key, text in ((EDITOR, settling.editor), (PRINTER, settling.printer)):
        await crew.answered(await crew.say(text, key), key, told=False)
    await crew.answered(await crew.say(settling.lead, LEAD), LEAD)
    for result in await _results(crew, LEAD):
        for line in result.get("transcript", ()):
            crew.tell.note(f"{line['from_session']}: “{words_of(line['text'])}”")
    for refusal in await _results(crew, PRINTER):
        error = refusal.get("error")
        if error is not None:
            crew.tell.note(f"{PRINTER} was told {error['code']}: {error['message']}")


async def _results(crew: Crew, session_key: str) -> list[dict[str, Any]]:
    page = await crew.client.history(session_key, limit=20)
    texts = [said.text for said in page.messages if said.role is Role.TOOL]
    return [json.loads(text) for text in texts if text.startswith("{")]
