"""Results that hold no answer: of runs that never began, and as one reads them who may not.

Invariant: what is withheld is withheld whole: nothing of the answer, its length or its files.
"""

from __future__ import annotations

from perdure.delegation.results import Condensation, RunResult
from perdure.domain.runs import EndReason, RunState, status_of

WITHHELD = (
    "[withheld] The result is above the level of this session. A person may approve that it is "
    "taken in, which raises the session."
)
_NOTHING = Condensation(level=1, original_tokens=0, tokens=0)


def unstarted(run_id: str, session_key: str, reason: EndReason, why: str = "") -> RunResult:
    """The result of a run that ended before it began."""
    return RunResult(
        run_id=run_id,
        session_key=session_key,
        status=status_of(RunState.ENDED, reason),
        end_reason=reason,
        response=f"[{reason}] The run was not started. {why}".strip(),
        condensation=_NOTHING,
    )


def withheld(result: RunResult) -> RunResult:
    """A result as one reads it whose level it is above: that it is there."""
    return RunResult(
        run_id=result.run_id,
        session_key=result.session_key,
        status=result.status,
        end_reason=result.end_reason,
        response=WITHHELD,
        condensation=_NOTHING,
    )
