"""What policy is asked in a turn and of a session; the calls of a turn are asked about beside it.

Invariant: whoever acts asks here, with the session's live label, and records the entry in the
transaction of the act or before it. The decisions themselves are `perdure.policy`'s, and pure.
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.audit import AuditEntry
from perdure.channels import effective_level
from perdure.config import Settings
from perdure.config.policies import model_clearance
from perdure.domain.endings import WITHHELD
from perdure.domain.keys import Marker, SessionKey
from perdure.domain.labels import Label, can_flow
from perdure.domain.messages import Message, ToolCall
from perdure.domain.steps import StepRequest
from perdure.guard.asking import Asking, Judged, arguments_of
from perdure.guard.calls import CallGuard
from perdure.policy.conditions import Outcome, evaluate
from perdure.policy.engine import Decision
from perdure.policy.facts import Facts
from perdure.policy.hooks import Action, Hook
from perdure.policy.rules import Rule
from perdure.policy.secrets import find_secrets


class Guard:
    """Asks the policy of one installation."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._asking = Asking(settings)
        #: What is asked of tool calls.
        self.calls = CallGuard(self._asking)
        self.entry = self._asking.entry
        self.recorded = self._asking.recorded

    # A turn ----------------------------------------------------------------------------------

    def invocation(self, request: StepRequest, models: tuple[str, ...]) -> list[Decision]:
        """What begins a step on `models`: the agent's invocation at the first, the model's
        credential, and what the provider would read."""
        chain = ", ".join(models)
        clearance = model_clearance(self._settings.models, models)
        asked = []
        if request.step == 1:
            asked.append(
                self._asking.facts(
                    Hook.AGENT_INVOCATION,
                    request,
                    target=request.agent,
                    model=chain,
                    model_clearance=clearance,
                )
            )
        if clearance is not Label.RESTRICTED:
            asked.append(self._asking.facts(Hook.SECRET_ACCESS, request, secret=f"models.{chain}"))
        asked.append(
            self._asking.facts(
                Hook.PRE_CONTEXT_INJECTION, request, model=chain, model_clearance=clearance
            )
        )
        return [self._asking.decide(facts) for facts in asked]

    def context(
        self, request: StepRequest, messages: tuple[Message, ...]
    ) -> tuple[tuple[Message, ...], list[AuditEntry]]:
        """The messages as rules on PRE_CONTEXT_INJECTION let the model read them."""
        if not self._asking.rules_of(Hook.PRE_CONTEXT_INJECTION):
            return messages, []
        judged, entries = [], []

        def read(text: str) -> str | None:
            """What may be read of a text, None for nothing of it."""
            decision = self._asking.decide(
                self._asking.facts(Hook.PRE_CONTEXT_INJECTION, request, text=text)
            )
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
        decision = self._asking.decide(self._output(request, text))
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
        waits = any(
            _looks_into_text(rule, facts) for rule in self._asking.rules_of(Hook.PRE_OUTPUT)
        )

        def length(text: str) -> int:
            end = max(text.rfind(" "), text.rfind("\n")) + 1
            if waits or end <= 0 or find_secrets(text):
                return 0
            decision = self._asking.decide(self._output(request, text[:end]))
            return end if decision.action is Action.ALLOW else 0

        return length

    def announcement(self, request: StepRequest, channel: str, recipient: str, text: str) -> Judged:
        """A text that is told on a channel without the model having asked for it."""
        settings = self._settings.channels.get(channel)
        secret = self._asking.facts(Hook.SECRET_ACCESS, request, secret=f"channels.{channel}")
        output = self._asking.facts(
            Hook.PRE_OUTPUT,
            request,
            text=text,
            channel=channel,
            recipient=recipient,
            destination=effective_level(settings, recipient) if settings else Label.PUBLIC,
        )
        decisions = [self._asking.decide(secret), self._asking.decide(output)]
        entries = tuple(self.entry(decision, request) for decision in decisions)
        refused = next((one for one in decisions if not one.goes_on), None)
        if refused is not None:
            return Judged(text=WITHHELD, goes_on=False, reason=refused.reason, entries=entries)
        redacted = decisions[-1].text
        return Judged(text=text if redacted is None else redacted, goes_on=True, entries=entries)

    # A session -------------------------------------------------------------------------------

    def reset(self, session_key: str, agent: str, label: Label, sender: str) -> Decision:
        """A session that is about to begin anew."""
        return self._asking.decide(
            Facts(
                hook=Hook.SESSION_RESET,
                session_key=session_key,
                agent=agent,
                kind=SessionKey.parse(session_key).kind,
                label=label,
                clearance=self._asking.clearance(agent, label),
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

    def _output(self, request: StepRequest, text: str) -> Facts:
        channel, recipient, level = self.destination(request.session_key)
        if request.asked_by is not None:
            # It stays among sessions: what each of them may take is decided when it gets there.
            channel, recipient = None, request.asked_by
            level = self._asking.clearance(request.agent, request.label)
        return self._asking.facts(
            Hook.PRE_OUTPUT,
            request,
            text=text,
            channel=channel,
            recipient=recipient,
            destination=level,
        )


def _as_read(call: ToolCall, arguments: str | None) -> ToolCall:
    """A call with the arguments that may be read, as an object whatever is left of them."""
    if arguments == call.arguments:
        return call
    changed = call.model_copy(update={"arguments": arguments or "{}"})
    return (
        changed
        if arguments_of(changed) is not None
        else call.model_copy(update={"arguments": "{}"})
    )


def _looks_into_text(rule: Rule, facts: Facts) -> bool:
    """Whether it depends on the text, once it is known, what a rule says."""
    others = tuple(one for one in rule.when if one.field != "text")
    if rule.when == others:
        return False
    outcome = evaluate(rule.model_copy(update={"when": others}), facts).outcome
    return outcome in (Outcome.MATCHED, Outcome.ERROR)
