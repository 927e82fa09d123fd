"""`Upkeep`: what a schedule has done now and then, beside all sessions.

Invariant: each part does nothing where there is nothing to do, and may be done at any time.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from activities.stubs import UpkeepActivities
from perdure.domain.delegation import UpkeepReport
from workflows.turn import HEARTBEAT_TIMEOUT

_TIMEOUT = timedelta(minutes=10)
#: The schedule comes again.
_RETRY = RetryPolicy(maximum_attempts=3)


@workflow.defn
class Upkeep:
    """One round of upkeep."""

    @workflow.run
    async def run(self) -> UpkeepReport:
        """Bring lost runs to their end, remove what was kept long enough."""
        lost = await workflow.execute_activity_method(
            UpkeepActivities.reconcile_runs,
            start_to_close_timeout=_TIMEOUT,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=_RETRY,
            summary="find runs without a workflow",
        )
        swept = await workflow.execute_activity_method(
            UpkeepActivities.sweep_results,
            start_to_close_timeout=_TIMEOUT,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=_RETRY,
            summary="remove results past their time",
        )
        report = UpkeepReport(**lost.model_dump(exclude={"swept"}), swept=swept.swept)
        workflow.set_current_details(report.told)
        return report
