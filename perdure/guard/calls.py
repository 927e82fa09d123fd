"""What policy is asked of a tool call: before it runs, of what it sends, of what it brings back.

Invariant: whoever runs a call asks here, with the session's live label, and records the entries
with the claim and the seal. A simulation asks the same questions.
"""

from __future__ import annotations

import contextlib
import json
import posixpath

from pydantic import JsonValue

from perdure.channels import effective_level
from perdure.config.sources import SourceSettings
from perdure.domain.approvals import Approval, ApprovalState, digest_of
from perdure.domain.errors import Code, PerdureError, Refusal
from perdure.domain.labels import Label, join
from perdure.domain.messages import ToolCall
from perdure.domain.steps import ToolRequest
from perdure.guard.asking import Asking, Judged, arguments_of
from perdure.policy.engine import Decision
from perdure.policy.hooks import Action, Hook
from perdure.store.claims import Look, Ruling, Verdict
from perdure.store.file_labels import EVERYTHING, label_at
from perdure.tools import ToolSpec
from perdure.workspace import Workspace

#: The tool whose call is an output.
MESSAGE = "message"
_FILE_TOOLS = "files"


class CallGuard:
    """Asks the policy about tool calls."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._settings = asking.settings

    def rule(self, request: ToolRequest, look: Look, spec: ToolSpec | None) -> Ruling:
        """Whether a call runs, is refused, or waits for a person."""
        arguments = arguments_of(look.call)
        if spec is None or arguments is None:
            # It cannot run, whatever policy says; the tool room tells the model why.
            return Ruling(verdict=Verdict.RUN, call=look.call, known=spec is not None)
        approval = look.approval
        if approval is not None and approval.digest != digest_of(look.call):
            approval = None
        call = look.call
        if approval is not None and approval.changed is not None:
            call = call.model_copy(update={"arguments": approval.changed})
            arguments = arguments_of(call) or {}
        label = self.taken_in(request, spec, arguments, look.labels)
        decisions = self._call_decisions(request, spec, arguments, label)
        entries = tuple(self._asking.entry(one, request, arguments) for one in decisions)
        ruling = Ruling(verdict=Verdict.RUN, call=call, label=label, entries=entries)
        blocked = next((one for one in decisions if one.action is Action.BLOCK), None)
        if blocked is not None:
            return ruling.refused(blocked.reason, blocked.decided_by)
        asked = next((one for one in decisions if one.action is Action.REQUIRE_APPROVAL), None)
        if asked is not None and (approval is None or approval.state is ApprovalState.PENDING):
            timeout = self._settings.policy.approval_timeout
            return ruling.asking(asked.reason, asked.decided_by, timeout)
        if approval is not None and approval.state is not ApprovalState.APPROVED:
            return ruling.refused(_undecided(approval), approval.asked_by)
        return ruling.model_copy(update={"call": _redacted(call, arguments, decisions)})

    def simulate(
        self,
        request: ToolRequest,
        spec: ToolSpec,
        arguments: dict[str, JsonValue],
        labels: dict[str, Label],
    ) -> Decision:
        """The decision on a call, without the call: nothing is recorded and nothing changes."""
        label = self.taken_in(request, spec, arguments, labels)
        decisions = self._call_decisions(request, spec, arguments, label)
        return next((one for one in decisions if not one.goes_on), decisions[0])

    def taken_in(
        self,
        request: ToolRequest,
        spec: ToolSpec,
        arguments: dict[str, JsonValue],
        labels: dict[str, Label],
    ) -> Label:
        """The level of what a call brings into the session, as far as its arguments tell. Looks
        where the links of a path lead: call it in a thread."""
        declared = self._settings.tools.get(spec.name)
        label = declared.label if declared else Label.PUBLIC
        source = self._settings.mcp.get(spec.server or "")
        if source is not None:
            label = join(label, source.level)
        if spec.workspace:
            label = join(label, label_at(labels, EVERYTHING))
        path = arguments.get("path", EVERYTHING)
        if spec.group == _FILE_TOOLS and spec.name != "grep" and isinstance(path, str):
            label = join(label, self.file_label(path, labels))
            with contextlib.suppress(PerdureError):  # a path that leads nowhere
                place = Workspace.for_session(self._settings.home, request.session_key).place(path)
                label = join(label, self.file_label(place, labels))
        return label

    def file_label(self, path: str, labels: dict[str, Label]) -> Label:
        """The level of a file or folder of a workspace, by its settings and its history."""
        place = posixpath.normpath(path)
        return join(self._settings.workspace.label_of(place), label_at(labels, place))

    def response(
        self, request: ToolRequest, spec: ToolSpec, call: ToolCall, text: str, label: Label
    ) -> Judged:
        """A tool's result on its way to the model."""
        decision = self._asking.decide(
            self._asking.facts(
                Hook.POST_TOOL_RESPONSE,
                request,
                tool=spec.name,
                arguments=arguments_of(call) or {},
                text=text,
                result_label=label,
            )
        )
        entries = (self._asking.entry(decision, request, arguments_of(call)),)
        if not decision.goes_on:
            refusal = Refusal(code=Code.DENIED, message=decision.reason, hint="Policy withheld it.")
            return Judged(
                text='{"error": ' + refusal.model_dump_json() + "}",
                goes_on=False,
                reason=decision.reason,
                entries=entries,
            )
        return Judged(
            text=text if decision.text is None else decision.text, goes_on=True, entries=entries
        )

    # Parts ----------------------------------------------------------------------------------

    def _call_decisions(
        self,
        request: ToolRequest,
        spec: ToolSpec,
        arguments: dict[str, JsonValue],
        label: Label,
    ) -> list[Decision]:
        channel, recipient, level = None, None, None
        source = self._settings.mcp.get(spec.server or "")
        if spec.name == MESSAGE:
            channel, recipient = str(arguments.get("channel")), str(arguments.get("recipient"))
            settings = self._settings.channels.get(channel)
            level = effective_level(settings, recipient) if settings else Label.PUBLIC
        elif source is not None:
            level = source.clearance
        before = self._asking.decide(
            self._asking.facts(
                Hook.PRE_TOOL_CALL,
                request,
                tool=spec.name,
                arguments=arguments,
                result_label=label,
                channel=channel,
                recipient=recipient,
                destination=level,
            )
        )
        if before.arguments is not None:
            # What the one redacted, the others must not bring back.
            arguments = before.arguments
        if source is not None:
            return [before, *self._of_server(request, spec, source, arguments, label)]
        if spec.name != MESSAGE:
            return [before, *self._asked_always(before, spec, arguments)]
        secret = f"channels.{channel}"
        access = self._asking.facts(Hook.SECRET_ACCESS, request, secret=secret, tool=spec.name)
        output = self._asking.facts(
            Hook.PRE_OUTPUT,
            request,
            text=str(arguments.get("text")),
            channel=channel,
            recipient=recipient,
            destination=level,
        )
        return [before, self._asking.decide(access), self._asking.decide(output)]

    def _of_server(
        self,
        request: ToolRequest,
        spec: ToolSpec,
        source: SourceSettings,
        arguments: dict[str, JsonValue],
        label: Label,
    ) -> list[Decision]:
        """What is asked of a call that leaves for an MCP server: the secret it is reached with,
        and whether it may be told these arguments, which have the session's level."""
        asked = []
        if source.secrets:
            secret = f"mcp.{spec.server}"
            asked.append(
                self._asking.facts(Hook.SECRET_ACCESS, request, secret=secret, tool=spec.name)
            )
        asked.append(
            self._asking.facts(
                Hook.MCP_TOOL_CALL,
                request,
                tool=spec.name,
                server=spec.server,
                arguments=arguments,
                result_label=label,
                destination=source.clearance,
            )
        )
        return [self._asking.decide(facts) for facts in asked]

    def _asked_always(
        self, before: Decision, spec: ToolSpec, arguments: dict[str, JsonValue]
    ) -> list[Decision]:
        """The question for a person that a tool asks of some of its calls, whatever rules say."""
        if not before.goes_on or not spec.asks(before.arguments or arguments):
            return []
        changes = {
            "action": Action.REQUIRE_APPROVAL,
            "decided_by": f"tool:{spec.name}",
            "reason": f"{spec.name} asks for a person's approval of what cannot be undone.",
            "label_after": before.label_before,
        }
        return [before.model_copy(update=changes)]


def _redacted(
    call: ToolCall, arguments: dict[str, JsonValue], decisions: list[Decision]
) -> ToolCall:
    """The call as it may run: with what was redacted of its arguments, or of what it sends."""
    changed = arguments
    for decision in decisions:
        if decision.arguments is not None:
            changed = decision.arguments
        if decision.text is not None:
            changed = {**changed, "text": decision.text}
    if changed is arguments:
        return call
    return call.model_copy(update={"arguments": json.dumps(changed, ensure_ascii=False)})


def _undecided(approval: Approval) -> str:
    if approval.state is ApprovalState.DENIED:
        note = f": {approval.note}" if approval.note else ""
        return f"{approval.decided_by} denied the approval{note}."
    if approval.state is ApprovalState.EXPIRED:
        return "Nobody approved the call in time."
    return "The approval was withdrawn."
