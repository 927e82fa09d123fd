"""Who plays in the demo: sessions, their agents, and the documents that are worked on.

Invariant: names only; what is said is in the stories.
"""

from __future__ import annotations

#: The session that delegates, and writes the report.
LEAD = "default:lead"
#: In which something CONFIDENTIAL is read.
CLERK = "default:clerk"
#: To which something is dictated from the beginning to the end.
ARCHIVE = "default:archive"
#: Which are asked when the report is printed.
EDITOR = "default:editor"
PRINTER = "default:printer"

#: Who answers in each of them.
AGENTS = {
    LEAD: "lead",
    CLERK: "clerk",
    ARCHIVE: "archivist",
    EDITOR: "desk",
    PRINTER: "desk",
}
#: Who works for the lead.
RESEARCHER = "researcher"

#: What the three researchers read: one is left alone, one is steered, one is killed.
STEADY = "docs/failures.md"
STRAY = "docs/security.md"
HUNG = "docs/delegation.md"
#: What is dictated.
DICTATED = "docs/words.md"

#: What each researcher leaves in its workspace, and what the lead makes of it.
FINDINGS = "findings.md"
REPORT = "report.md"
#: On which both sides of an exchange keep what they want.
TERMS = "terms.md"


def name_of(path: str) -> str:
    """How a run is called that reads a document."""
    return path.rpartition("/")[2].removesuffix(".md")
