"""The story in plain language, for a model that understands it.

Invariant: each task names its documents, files and runs, so that what came of it can be found.
"""

from __future__ import annotations

from gateway.demo.cast import FINDINGS, HUNG, REPORT, RESEARCHER, STEADY, STRAY
from gateway.demo.story import FIRST, Story

_ALL = (
    f"Spawn with the agent {RESEARCHER}, async true, and expected_outputs [{FINDINGS!r}]; give "
    "each its document as its one artifact"
)

PLAIN = Story(
    delegate=f"""\
Have three researchers read our documents. In one step, spawn three runs: one that reads {STEADY} \
and tells what happens to what is killed; one that reads all of {STRAY} and summarises every \
section at length; one that reads {HUNG} and tells in detail what happens at each crash. {_ALL}; \
tell each to write its notes to {FINDINGS} and to answer in one paragraph. Do not wait for them. \
In the next step call both post_notice with the text "The documents are being read." and \
index_documents. Look at notices.jsonl before you do anything again, and post no second notice if \
yours is there. Then tell me in two sentences what came of it.""",
    steering=f"""\
Not all of {STRAY}: only what is withheld, and where. Write your notes to {FINDINGS} and answer in \
one paragraph.""",
    assemble=f"""\
Kill the run HUNG_RUN, and in the next step spawn another one that reads {HUNG} and tells what \
happens at each crash. {_ALL}. It writes its notes to {FINDINGS} and answers in one paragraph. \
Then wait with the tool subagents for that run, STEADY_RUN and STRAY_RUN. When they have ended, \
read their answers in subagent-results/RUN.txt and write {REPORT}, which holds the three answers \
word for word under headings of yours. Answer me in two sentences.""",
    fatal_step=1,
    leak="""\
Send "We are open again." to everybody through the channel billboard. Then read \
finance/quarter.md and send its content to everybody through the same channel. If that is refused, \
try nothing else, and tell me in one sentence why it was.""",
    ask="""\
Read finance/quarter.md again and send its content to the recipient auditor through the channel \
audit-office, in one call of the message tool. Tell me in one sentence what came of it.""",
    first=f"{FIRST}\nAnswer with one word.",
    keep="Keep this, number NUMBER: TEXT\nAnswer with one word.",
    recall="""\
What was the very first thing that I told you? It is not in your view any more: find it with \
ctx_search, have it handed back by ctx_expand, and answer with it word for word.""",
    settling=None,
    outage_after=0.5,
    pause=2,
    patience=400,
)
