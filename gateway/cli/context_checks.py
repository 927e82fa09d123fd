"""`perdure doctor --context KEY`: whether the summaries of one session are whole.

Invariant: without `--repair` nothing is changed; with it, no message is lost.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli.output import console, print_json
from gateway.cli.words import plural

if TYPE_CHECKING:
    from perdure.store.integrity import Finding


def check_context(home: Path | None, key: str, *, repair: bool, as_json: bool) -> bool:
    """Tell what is wrong with a session's summaries, and mend it if asked; whether all is well
    in the end."""
    findings = asyncio.run(_findings(home, key, repair))
    well = repair or not findings
    if as_json:
        told = [finding.model_dump(mode="json") for finding in findings]
        print_json({"ok": well, "session_key": key, "repaired": repair, "findings": told})
        return well
    out = console()
    for finding in findings:
        out.print(f"{finding.fault} {finding.summary_id}: {finding.detail}")
        out.print(f"  {finding.repair}")
    if not findings:
        out.print(f"The summaries of {key} are whole.")
    else:
        counted = plural(len(findings), "fault")
        done = "mended; no message was lost" if repair else "found; --repair mends, losing nothing"
        out.print(f"{counted} {done}")
    return well


async def _findings(home: Path | None, key: str, repair: bool) -> list[Finding]:
    from perdure.config import load_settings
    from perdure.domain.errors import NotFound
    from perdure.store import Store
    from perdure.store.integrity import check, mend

    store = await Store.open(load_settings(home).store_url)
    try:
        if await store.sessions.get(key) is None:
            raise NotFound(f"There is no session {key}.", "`perdure sessions` lists them.")
        return await (mend if repair else check)(store.database, key)
    finally:
        await store.close()
