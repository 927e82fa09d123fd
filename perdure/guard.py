"""From what is about to happen to what policy is asked, at every hook; and what is recorded of it.

Invariant: whoever acts asks here, with the session's live label, and records the entry in the
transaction of the act or before it. The decisions themselves are `perdure.policy`'s, and pure.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
from collections.abc import Callable
from typing import Any

from pydantic import JsonValue

from perdure.audit import AuditEntry
from perdure.channels import effective_level
from perdure.config import AgentSettings, Settings
from perdure.config.policies import model_clearance
from perdure.domain.approvals import Approval, ApprovalState, digest_of
from perdure.domain.errors import Code, PerdureError, Refusal
from perdure.domain.keys import Marker, SessionKey
from perdure.domain.labels import Label, can_flow, join
from perdure.domain.messages import Frozen, Message, ToolCall
from perdure.domain.steps import StepRequest, ToolRequest
from perdure.policy.conditions import Outcome, evaluate
from perdure.policy.engine import Decision, decide
from perdure.policy.facts import Facts
from perdure.policy.hooks import Action, Hook
from perdure.policy.rules import Rule, Rules
from perdure.policy.secrets import find_secrets, redact_arguments
from perdure.store.claims import Look, Ruling, Verdict
from perdure.store.file_labels import EVERYTHING, label_at
from perdure.tools import ToolSpec
from perdure.workspace import Workspace

#: What stands in the place of an answer that may not leave.
WITHHELD = "[withheld] Policy does not let this answer out."
#: The tool whose call is an output.
MESSAGE = "message"
_FILE_TOOLS = "files"


class Judged(Frozen):
    """Text that was judged: what may go on of it, and what was recorded."""

    text: str
    goes_on: bool
    reason: str = ""
    entries: tuple[AuditEntry, ...] = ()


class Guard:
    """Asks the policy of one installation."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._rules = Rules(rules=settings.policy.rules)

    # A turn ----------------------------------------------------------------------------------

    def invocation(self, request: StepRequest, models: tuple[str, ...]) -> list[Decision]:
        """What begins a step on `models`: the agent's invocation at the first, the model's
        credential, and what the provider would read."""
        chain = ", ".join(models)
        clearance = model_clearance(self._settings.models, models)
        asked = []
        if request.step == 1:
            asked.append(
                self._facts(
                    Hook.AGENT_INVOCATION,
                    request,
                    target=request.agent,
                    model=chain,
                    model_clearance=clearance,
                )
            )
        if clearance is not Label.RESTRICTED:
            asked.append(self._facts(Hook.SECRET_ACCESS, request, secret=f"models.{chain}"))
        asked.append(
            self._facts(Hook.PRE_CONTEXT_INJECTION, request, model=chain, model_clearance=clearance)
        )
        return [self._decide(facts) for facts in asked]

    def context(
        self, request: StepRequest, messages: tuple[Message, ...]
    ) -> tuple[tuple[Message, ...], list[AuditEntry]]:
        """The messages as rules on PRE_CONTEXT_INJECTION let the model read them."""
        if not self._rules.of(Hook.PRE_CONTEXT_INJECTION):
            return messages, []
        judged, entries = [], []

        def read(text: str) -> str | None:
            """What may be read of a text, None for nothing of it."""
            decision = self._decide(self._facts(Hook.PRE_CONTEXT_INJECTION, request, text=text))
            if decision.action is Action.ALLOW:
                return text
            entries.append(self.entry(decision, request))
            return decision.text if decision.goes_on else None

        for message in messages:
            text = read(message.text)
            if text is None:
                text = f"[withheld] {entries[-1].reason}"
            calls = tuple(_as_read(call, read(call.arguments)) for call in message.tool_calls)
            if text == message.text and calls == message.tool_calls:
                judged.append(message)
                continue
            changes = {"text": text, "tool_calls": calls, "raw": None}
            judged.append(message.model_copy(update=changes))
        return tuple(judged), entries

    def answer(self, request: StepRequest, text: str) -> Judged:
        """A final answer on its way out of the session."""
        decision = self._decide(self._output(request, text))
        entries = (self.entry(decision, request),)
        if not decision.goes_on:
            return Judged(text=WITHHELD, goes_on=False, reason=decision.reason, entries=entries)
        return Judged(
            text=text if decision.text is None else decision.text, goes_on=True, entries=entries
        )

    def releasable(self, request: StepRequest) -> Callable[[str], int]:
        """How much of the text streamed so far may be shown before the answer is judged: whole
        words, as long as the answer so far would be let out as it stands. Nothing, where a rule
        looks into the text: what it looks for may begin before it can be told."""
        if request.asked_by is not None and not can_flow(
            request.label, self._settings.gateway.level
        ):
            # The session that gets the answer waits for the whole; people may not listen.
            return lambda text: 0
        facts = self._output(request, "")
        waits = any(_looks_into_text(rule, facts) for rule in self._rules.of(Hook.PRE_OUTPUT))

        def length(text: str) -> int:
            end = max(text.rfind(" "), text.rfind("\n")) + 1
            if waits or end <= 0 or find_secrets(text):
                return 0
            decision = self._decide(self._output(request, text[:end]))
            return end if decision.action is Action.ALLOW else 0

        return length

    def announcement(self, request: StepRequest, channel: str, recipient: str, text: str) -> Judged:
        """A text that is told on a channel without the model having asked for it."""
        settings = self._settings.channels.get(channel)
        secret = self._facts(Hook.SECRET_ACCESS, request, secret=f"channels.{channel}")
        output = self._facts(
            Hook.PRE_OUTPUT,
            request,
            text=text,
            channel=channel,
            recipient=recipient,
            destination=effective_level(settings, recipient) if settings else Label.PUBLIC,
        )
        decisions = [self._decide(secret), self._decide(output)]
        entries = tuple(self.entry(decision, request) for decision in decisions)
        refused = next((one for one in decisions if not one.goes_on), None)
        if refused is not None:
            return Judged(text=WITHHELD, goes_on=False, reason=refused.reason, entries=entries)
        redacted = decisions[-1].text
        return Judged(text=text if redacted is None else redacted, goes_on=True, entries=entries)

    # A tool call -----------------------------------------------------------------------------

    def rule(self, request: ToolRequest, look: Look, spec: ToolSpec | None) -> Ruling:
        """Whether a call runs, is refused, or waits for a person."""
        arguments = _arguments(look.call)
        if spec is None or arguments is None:
            # It cannot run, whatever policy says; the tool room tells the model why.
            return Ruling(verdict=Verdict.RUN, call=look.call, known=spec is not None)
        approval = look.approval
        if approval is not None and approval.digest != digest_of(look.call):
            approval = None
        call = look.call
        if approval is not None and approval.changed is not None:
            call = call.model_copy(update={"arguments": approval.changed})
            arguments = _arguments(call) or {}
        label = self.taken_in(request, spec, arguments, look.labels)
        decisions = self._call_decisions(request, spec, arguments, label)
        entries = tuple(self.entry(one, request, arguments) for one in decisions)
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
        decision = self._decide(
            self._facts(
                Hook.POST_TOOL_RESPONSE,
                request,
                tool=spec.name,
                arguments=_arguments(call) or {},
                text=text,
                result_label=label,
            )
        )
        entries = (self.entry(decision, request, _arguments(call)),)
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

    # A session -------------------------------------------------------------------------------

    def reset(self, session_key: str, agent: str, label: Label, sender: str) -> Decision:
        """A session that is about to begin anew."""
        return self._decide(
            Facts(
                hook=Hook.SESSION_RESET,
                session_key=session_key,
                agent=agent,
                kind=SessionKey.parse(session_key).kind,
                label=label,
                clearance=self._clearance(agent, label),
                sender=sender,
            )
        )

    def destination(self, session_key: str) -> tuple[str | None, str | None, Label]:
        """Where a session's answers go: channel, recipient and their level."""
        key = SessionKey.parse(session_key)
        channel = key.get(Marker.CHANNEL)
        settings = self._settings.channels.get(channel or "")
        if channel is None:
            return None, None, self._settings.gateway.level
        if settings is None:
            # Of a channel that is not configured, or no longer, nobody knows who reads it.
            return channel, key.get(Marker.PEER) or key.user, Label.PUBLIC
        recipient = key.get(Marker.PEER) or key.user
        return channel, recipient, effective_level(settings, recipient)

    def entry(
        self,
        decision: Decision,
        request: StepRequest | ToolRequest,
        arguments: dict[str, JsonValue] | None = None,
    ) -> AuditEntry:
        """What is recorded of a decision in a turn; arguments without their secrets."""
        return self.recorded(
            decision,
            request.session_key,
            turn=request.turn,
            step=request.step,
            arguments=arguments,
        )

    def recorded(
        self,
        decision: Decision,
        session_key: str,
        *,
        turn: int | None = None,
        step: int | None = None,
        arguments: dict[str, JsonValue] | None = None,
    ) -> AuditEntry:
        """What is recorded of a decision; arguments without their secrets."""
        return AuditEntry(
            hook=decision.hook,
            session_key=session_key,
            turn=turn,
            step=step,
            decision=decision.action,
            decided_by=decision.decided_by,
            rules_evaluated=tuple(
                rule.model_dump(mode="json") for rule in decision.rules_evaluated
            ),
            label_before=decision.label_before,
            label_after=decision.label_after,
            reason=decision.reason,
            arguments=redact_arguments(arguments or {}),
        )

    # Parts -----------------------------------------------------------------------------------

    def _call_decisions(
        self,
        request: ToolRequest,
        spec: ToolSpec,
        arguments: dict[str, JsonValue],
        label: Label,
    ) -> list[Decision]:
        channel, recipient, level = None, None, None
        if spec.name == MESSAGE:
            channel, recipient = str(arguments.get("channel")), str(arguments.get("recipient"))
            settings = self._settings.channels.get(channel)
            level = effective_level(settings, recipient) if settings else Label.PUBLIC
        before = self._decide(
            self._facts(
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
        if spec.name != MESSAGE:
            return [before, *self._asked_always(before, spec, arguments)]
        if before.arguments is not None:
            # What the one redacted, the other must not bring back.
            arguments = before.arguments
        secret = f"channels.{channel}"
        access = self._facts(Hook.SECRET_ACCESS, request, secret=secret, tool=spec.name)
        output = self._facts(
            Hook.PRE_OUTPUT,
            request,
            text=str(arguments.get("text")),
            channel=channel,
            recipient=recipient,
            destination=level,
        )
        return [before, self._decide(access), self._decide(output)]

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

    def _output(self, request: StepRequest, text: str) -> Facts:
        channel, recipient, level = self.destination(request.session_key)
        if request.asked_by is not None:
            # It stays among sessions: what each of them may take is decided when it gets there.
            channel, recipient = None, request.asked_by
            level = self._clearance(request.agent, request.label)
        return self._facts(
            Hook.PRE_OUTPUT,
            request,
            text=text,
            channel=channel,
            recipient=recipient,
            destination=level,
        )

    def _facts(self, hook: Hook, request: StepRequest | ToolRequest, **more: Any) -> Facts:
        return Facts(
            hook=hook,
            session_key=request.session_key,
            agent=request.agent,
            kind=SessionKey.parse(request.session_key).kind,
            label=request.label,
            clearance=self._clearance(request.agent, request.label),
            **more,
        )

    def _clearance(self, agent: str, label: Label) -> Label:
        known: AgentSettings | None = self._settings.agents.get(agent)
        return known.clearance if known else label

    def _decide(self, facts: Facts) -> Decision:
        return decide(facts, self._rules)


def _as_read(call: ToolCall, arguments: str | None) -> ToolCall:
    """A call with the arguments that may be read, as an object whatever is left of them."""
    if arguments == call.arguments:
        return call
    changed = call.model_copy(update={"arguments": arguments or "{}"})
    return (
        changed if _arguments(changed) is not None else call.model_copy(update={"arguments": "{}"})
    )


def _looks_into_text(rule: Rule, facts: Facts) -> bool:
    """Whether it depends on the text, once it is known, what a rule says."""
    others = tuple(one for one in rule.when if one.field != "text")
    if rule.when == others:
        return False
    outcome = evaluate(rule.model_copy(update={"when": others}), facts).outcome
    return outcome in (Outcome.MATCHED, Outcome.ERROR)


def _arguments(call: ToolCall) -> dict[str, JsonValue] | None:
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        return None
    return arguments if isinstance(arguments, dict) else None


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
