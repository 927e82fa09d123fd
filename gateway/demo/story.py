"""What the demo says to its agent: as directives for the rehearsal model, or in plain language.

Invariant: both tell the same story, task by task, so that both can be killed at the same places.
"""

from __future__ import annotations

from perdure.domain.messages import Frozen
from perdure.models import REHEARSAL

#: The session of the agent that does the work, the one of a visitor who asks meanwhile, and the
#: one in which something CONFIDENTIAL is read.
LEAD = "default:demo"
VISITOR = "default:visitor"
CLERK = "default:clerk"

#: How long the rehearsal model takes for the calls in which a process is killed, in seconds.
READING = 4.0
ANSWERING = 3.0


class Story(Frozen):
    """The messages of a demo, in their order, and when to strike. Times are seconds."""

    look: str
    guide: str
    #: The worker is killed during its first model call.
    reading: str
    #: The worker is killed during its tool calls.
    notice: str
    #: Temporal is killed during its model call.
    answer: str
    last: str
    #: In the clerk's session: something public is told, something CONFIDENTIAL read, and nothing of
    #: it can be told in public.
    leak: str
    #: It may be told where it may flow, when a person agrees: the worker is killed meanwhile.
    ask: str
    #: What the visitor asks all the while; NUMBER stands for the number of the question.
    question: str
    #: From the start of the reading's model call to the kill.
    kill_after: float
    #: From the start of the answer's model call to the kill of Temporal.
    outage_after: float
    #: Between two questions of the visitor.
    pause: float
    #: The longest wait for one thing to happen.
    patience: float

    def question_of(self, number: int) -> str:
        """The visitor's question of that number."""
        return self.question.replace("NUMBER", str(number))


def story_for(models: tuple[str, ...]) -> Story:
    """The story as the first of `models` understands it."""
    return _DIRECTIVES if models[0] == REHEARSAL else _PLAIN


_DIRECTIVES = Story(
    look="""\
Look around in your workspace.
/sleep 1
/ls {"path": "docs"}
/grep {"pattern": "^# ", "path": "."}
/sleep 1
/read {"path": "README.md"}
/read {"path": "docs/architecture.md"}
/sleep 1
/say There are {{1.total}} documents under docs, and {{2.total}} titles in {{2.files}} files. \
I have read README.md, of {{3.total_lines}} lines, and architecture.md, of {{4.total_lines}}.""",
    guide="""\
Write a reading guide and correct it.
/sleep 1
/grep {"pattern": "kill", "path": "docs/failures.md"}
/read {"path": "docs/words.md"}
/sleep 1
/write {"path": "guide.md", "content": "# Reading guide\\n\\nfailures.md speaks of killing in \
{{1.total}} lines.\\nSTATE: draft\\n"}
/sleep 1
/edit {"path": "guide.md", "old": "STATE: draft", "new": "STATE: corrected"}
/sleep 1
/say The guide has {{4.bytes}} bytes, and {{4.replaced}} place in it was corrected.""",
    reading=f"""\
Think about the failures, slowly.
/sleep {READING:g}
/grep {{"pattern": "unknown", "path": "docs/failures.md"}}
/say After a long model call: failures.md says "unknown" in {{{{1.total}}}} lines.""",
    notice="""\
Post a notice and make the index, at the same time. Then look at what came of it.
/post_notice {"text": "The documents were read."}
/index_documents {}
/sleep 1
/grep {"pattern": "documents were read", "path": "notices.jsonl"}
/sleep 1
/say The index counts {{2.words}} words in {{2.documents}} documents. Of the notice I was told: \
"{{1.error.message}}" So I looked: it is on the board {{3.total}} time, and I do not post it again.\
""",
    answer=f"""\
Take your time for this answer.
/sleep {ANSWERING:g}
/say This answer took {ANSWERING:g} seconds, and Temporal was killed meanwhile.""",
    last="""\
Is everything still there?
/sleep 1
/read {"path": "guide.md"}
/read {"path": "index.json", "start_line": 1, "end_line": 7}
/sleep 1
/say It is: the guide has {{1.total_lines}} lines, the index {{2.total_lines}}.""",
    leak="""\
Say in public that we are open. Then read the figures of the quarter, and put them there too.
/message {"channel": "billboard", "recipient": "everybody", "text": "We are open again."}
/sleep 0.5
/read {"path": "finance/quarter.md"}
/sleep 0.5
/message {"channel": "billboard", "recipient": "everybody", "text": "{{2.content}}"}
/simulate_tool_call {"tool_name": "message", "args": {"channel": "billboard", "recipient": \
"everybody", "text": "A hint, then."}}
/sleep 0.5
/say I know the figures and may not put them on the billboard: "{{3.error.message}}" Not even a \
hint: {{4.decision}} by {{4.decided_by}}.""",
    ask="""\
Then send the figures to the auditor.
/read {"path": "finance/quarter.md"}
/sleep 0.5
/message {"channel": "audit-office", "recipient": "auditor", "text": "{{1.content}}"}
/sleep 0.5
/say A person agreed, and the auditor has them: {{2.status}}, {{2.delivery_id}}.""",
    question="/say Answer NUMBER to the visitor.",
    # In the middle of the call.
    kill_after=READING / 2,
    # So late that the answer is ready before the server, which needs half a second, is back.
    outage_after=ANSWERING - 0.25,
    pause=1.5,
    patience=90,
)

_PLAIN = Story(
    look="""\
Your workspace holds the documents of a software project. Look around with ls and grep, read the \
beginning of README.md and of docs/architecture.md, and tell me in two sentences what it is.""",
    guide="""\
Find out with grep what docs/failures.md says about killed processes. Write a reading guide of at \
most ten lines to guide.md, then improve one line of it with edit. Answer in one sentence.""",
    reading="""\
Explain in about 200 words, from docs/failures.md, what becomes of a model call whose worker is \
killed.""",
    notice="""\
In one step, call both post_notice with the text "The documents were read." and index_documents. \
Then look at notices.jsonl before you do anything again. Post no second notice if yours is there. \
Tell me in two sentences what came of both.""",
    answer="Explain in about 150 words what the outbox of this project is for.",
    last="Read guide.md and index.json. Are both complete? Answer in one sentence.",
    leak="""\
Send "We are open again." to everybody through the channel billboard. Then read \
finance/quarter.md and send its content to everybody through the same channel. If that is refused, \
try nothing else, and tell me in one sentence why it was.""",
    ask="""\
Read finance/quarter.md again and send its content to the recipient auditor through the channel \
audit-office, in one call of the message tool. Tell me in one sentence what came of it.""",
    question="What is NUMBER plus NUMBER? Answer with the number alone.",
    kill_after=0.5,
    outage_after=0.5,
    pause=8,
    patience=400,
)
