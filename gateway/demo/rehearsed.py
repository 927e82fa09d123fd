"""The story for the rehearsal model.

Invariant: it is told by directives alone, so it goes the same way every time, and every figure in
an answer was read by a tool.
"""

from __future__ import annotations

from gateway.demo.cast import (
    EDITOR,
    FINDINGS,
    HUNG,
    LEAD,
    PRINTER,
    REPORT,
    RESEARCHER,
    STEADY,
    STRAY,
    TERMS,
)
from gateway.demo.directives import call, passed_on, script
from gateway.demo.story import FIRST, Settling, Story

#: How long a model call takes in which something is killed, in seconds.
THINKING = 3.0

_STEADY = script(
    f"Read {STEADY}: what is killed, and what is of unknown outcome?",
    f"/sleep {THINKING:g}",
    call("grep", pattern="killed", path=STEADY),
    f"/sleep {THINKING:g}",
    call("grep", pattern="unknown", path=STEADY),
    f"/sleep {THINKING:g}",
    call("read", path=STEADY),
    call("write", path=FINDINGS, content="killed: {{1.total}} lines\nunknown: {{2.total}} lines\n"),
    f"/say {STEADY} tells on {{{{3.total_lines}}}} lines what happens when something dies: "
    "{{1.total}} of them speak of what is killed, {{2.total}} of what is of unknown outcome.",
)
_STRAY = script(
    f"Read all of {STRAY}, word by word, and learn it by heart.",
    "/sleep 300",
    call("read", path=STRAY),
)
_STEERED = script(
    f"Not all of {STRAY}: only what is withheld.",
    "/sleep 1.5",
    call("grep", pattern="withheld", path=STRAY),
    f"/sleep {THINKING:g}",
    call("write", path=FINDINGS, content="withheld: {{1.total}} lines\n"),
    f"/sleep {THINKING:g}",
    f"/say {STRAY} says on {{{{1.total}}}} lines what is withheld, for the first time on line "
    "{{1.matches.0.line}}.",
)
_HUNG = script(
    f"Read {HUNG}: what happens at each crash?",
    "/sleep 300",
    call("read", path=HUNG),
)
_SPAWNED_ANEW = script(
    f"Read {HUNG}: what happens at each crash?",
    "/sleep 0.5",
    call("grep", pattern=r"^\| \*\*", path=HUNG),
    f"/sleep {THINKING:g}",
    call("write", path=FINDINGS, content="phases: {{1.total}}\n"),
    "/sleep 1",
    f"/say {HUNG} goes through {{{{1.total}}}} phases in the life of a run and says for each what "
    "happens when the worker, the gateway or Temporal dies.",
)

#: The words of the lead, which the editor answers; see `_ASKED_EDITOR`.
LEADS_TERMS = script("Tomorrow at nine suits me.", "/say Settled: tomorrow at nine.")
_EDITORS_TERMS = script(
    "We print what is final: is it?",
    call("grep", pattern="^## ", path=REPORT),
    call("read", path=TERMS),
    "/say It has {{1.total}} parts and is final. {{2.content}}",
)
_ASKED_PRINTER = script(
    "When could you print the lead's report? Ask the lead whether it is final.",
    call("sessions_send", session_key=LEAD, mode="wait", text="Is your report final?"),
    "/say Tomorrow at nine. I asked the lead, and was told: {{1.error.code}}.",
)
_ASKED_EDITOR = script(
    "When can the report be printed?",
    call("sessions_send", session_key=PRINTER, mode="wait", text=passed_on(_ASKED_PRINTER)),
    call("read", path=TERMS),
    "/say The printer says: “{{1.response}}” {{2.content}}",
)


def _spawn(document: str, task: str) -> str:
    return call(
        "sessions_spawn",
        task=passed_on(task),
        agent=RESEARCHER,
        async_=True,
        artifact_refs=[document],
        expected_outputs=[FINDINGS],
    )


REHEARSED = Story(
    delegate=script(
        "Have three researchers read what our documents say of losing things. Meanwhile post a "
        "notice and make the index.",
        _spawn(STEADY, _STEADY),
        _spawn(STRAY, _STRAY),
        _spawn(HUNG, _HUNG),
        "---",
        call("post_notice", text="The documents are being read."),
        call("index_documents"),
        "---",
        call("grep", pattern="being read", path="notices.jsonl"),
        "/say Three researchers are at work, and the index counts {{5.words}} words. Of the notice "
        'I was told: "{{4.error.message}}" So I looked: it is on the board {{6.total}} time, and I '
        "do not post it again.",
    ),
    steering=_STEERED,
    assemble=script(
        f"The run on {HUNG} hangs: kill it and spawn it anew. Wait for all three, and write the "
        "report.",
        call("subagents", action="kill", target="HUNG_RUN"),
        "---",
        _spawn(HUNG, _SPAWNED_ANEW),
        "---",
        call(
            "subagents",
            action="wait",
            targets=["STEADY_RUN", "STRAY_RUN", "{{2.run_id}}"],
        ),
        "---",
        call("read", path="subagent-results/STEADY_RUN.txt"),
        call("read", path="subagent-results/STRAY_RUN.txt"),
        call("read", path="subagent-results/{{2.run_id}}.txt"),
        "---",
        call(
            "write",
            path=REPORT,
            content="# What may be lost\n\n## What dies\n\n{{4.content}}\n\n## What is withheld"
            "\n\n{{5.content}}\n\n## What is delegated\n\n{{6.content}}\n",
        ),
        f"/say All three have come back; what they found is in {REPORT}, {{{{7.bytes}}}} bytes.",
    ),
    fatal_step=2,
    leak=script(
        "Say in public that we are open. Then read the figures of the quarter, and put them there "
        "too.",
        call("message", channel="billboard", recipient="everybody", text="We are open again."),
        "---",
        call("read", path="finance/quarter.md"),
        "---",
        call("message", channel="billboard", recipient="everybody", text="{{2.content}}"),
        call(
            "simulate_tool_call",
            tool_name="message",
            args={"channel": "billboard", "recipient": "everybody", "text": "A hint, then."},
        ),
        '/say I know the figures and may not put them on the billboard: "{{3.error.message}}" Not '
        "even a hint: {{4.decision}} by {{4.decided_by}}.",
    ),
    ask=script(
        "Then send the figures to the auditor.",
        call("read", path="finance/quarter.md"),
        "---",
        call("message", channel="audit-office", recipient="auditor", text="{{1.content}}"),
        "/say A person agreed, and the auditor has them: {{2.status}}, {{2.delivery_id}}.",
    ),
    first=script(FIRST, "/say Kept: 1."),
    keep=script("Keep this, number NUMBER: TEXT", "/say Kept: NUMBER."),
    recall=script(
        "What was the very first thing that I told you?",
        call("ctx_search", query='"third stone" -ctx_search', scope="messages", limit=1),
        "---",
        call("ctx_expand", summary_id="{{1.hits.0.summary_id}}"),
        call("ctx_expand", summary_id="{{1.hits.0.id}}"),
        "/say In my context only a summary of summaries of summaries is left of it, the lowest of "
        "{{2.messages}} messages. Word for word: {{3.body}}",
    ),
    settling=Settling(
        editor=script(
            "You are asked when things are printed, and want to know whether they are final.",
            call("write", path=TERMS, content=passed_on(_EDITORS_TERMS)),
            "/say I ask for that.",
        ),
        printer="You print at nine in the morning.\n/say Every day.",
        lead=script(
            "Settle with the editor when the report is printed.",
            call("write", path=TERMS, content=LEADS_TERMS),
            "---",
            call(
                "sessions_send",
                session_key=EDITOR,
                mode="ping-pong",
                max_turns=2,
                text=passed_on(_ASKED_EDITOR),
            ),
            "/say We have talked {{2.turns_completed}} turns. {{2.response}}",
        ),
    ),
    # So late that the answer is ready before the server, which needs half a second, is back.
    outage_after=THINKING - 0.25,
    pause=0.4,
    patience=90,
)
