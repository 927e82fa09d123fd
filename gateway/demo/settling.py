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
from gateway.demo.story import Story
from perdure.domain.messages import Role


async def play(crew: Crew, story: Story) -> None:
    """Have the lead and the editor talk, the editor ask the printer, the printer ask the lead."""
    if story.settling is None:
        crew.left_out.append(
            "the exchange: only the rehearsal model can be told word for word to close a ring"
        )
        return
    for key, text in ((EDITOR, story.settling.editor), (PRINTER, story.settling.printer)):
        await crew.answered(await crew.say(text, key), key, told=False)
    message = await crew.say(story.settling.lead, LEAD)
    await crew.answered(message, LEAD)
    for refusal in await _results(crew, PRINTER):
        error = refusal.get("error")
        if error is not None:
            crew.tell.note(f"{PRINTER} was told {error['code']}: {error['message']}")
    for result in await _results(crew, LEAD):
        for line in result.get("transcript", ()):
            crew.tell.note(f"{line['from_session']}: “{words_of(line['text'])}”")


async def _results(crew: Crew, session_key: str) -> list[dict[str, Any]]:
    page = await crew.client.history(session_key, limit=20)
    texts = [said.text for said in page.messages if said.role is Role.TOOL]
    return [json.loads(text) for text in texts if text.startswith("{")]
