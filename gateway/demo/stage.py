"""The stage: a fresh home with settings, and workspaces that hold the project's own documents.

Invariant: the demo runs on its own home and on nothing else, whatever the environment says; only
the model may come from there.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from gateway.demo.cast import AGENTS, CLERK, DICTATED, HUNG, LEAD, STEADY, STRAY
from gateway.demo.plain import PLAIN
from gateway.demo.rehearsed import REHEARSED
from gateway.demo.story import Story
from perdure.config import Settings, load_settings
from perdure.domain.errors import Conflict, InvalidArgument, NotFound
from perdure.models import REHEARSAL
from perdure.workspace import Workspace

#: The folder from which Perdure is imported: a checkout has the documents there.
_ROOT = Path(__file__).parent.parent.parent

#: Without these the story cannot be told.
_NEEDED = ("README.md", STEADY, STRAY, HUNG, DICTATED)

_KEPT_VARIABLES = ("PERDURE_MODEL",)

_SETTINGS = """\
# The settings of `perdure demo`. PERDURE_MODEL names another model.
default_agent = "lead"

[agents.lead]
model = "rehearsal"
instructions = \"\"\"\\
  You have others work on the documents in your workspace, and write the report. Look at the \\
  facts before you answer. When a tool reports an unknown outcome, look at what it did before you \\
  call it again.\"\"\"
tools = [
  "files", "sessions", "subagents",
  "gateway.demo.tools:post_notice", "gateway.demo.tools:index_documents",
]

[agents.researcher]
model = "rehearsal"
instructions = "You read the documents in your workspace, and report what they say."
tools = ["files"]

[agents.clerk]
model = "rehearsal"
instructions = "You keep the figures of the house, and do what you are asked with them."
tools = ["files", "message", "policy"]

# Its window is so small that a long conversation comes to several depths in a minute.
[agents.archivist]
model = "rehearsal"
instructions = "You keep what is dictated to you."
tools = ["context"]
context_window = 2000

[agents.desk]
model = "rehearsal"
instructions = "You settle dates with whoever asks."
tools = ["files", "sessions"]

# The same for its numbers.
[context]
threshold = 0.5
fresh_tail = 4
leaf_fan_in = 2
condensed_fan_in = 2

# What lies in these folders raises the session that reads it.
[workspace.labels]
"finance/**" = "CONFIDENTIAL"

# A channel is PUBLIC unless it says otherwise, and so is a recipient.
[channels.billboard]
url = "file:out/billboard.jsonl"

[channels.audit-office]
url = "file:out/audit-office.jsonl"
level = "CONFIDENTIAL"
recipients = { auditor = { level = "CONFIDENTIAL" } }

[[policy.rules]]
id = "ask-before-telling"
hook = "PRE_TOOL_CALL"
priority = 10
when = [
  { field = "tool", op = "equals", value = "message" },
  { field = "label", op = "gte", value = "CONFIDENTIAL" },
]
action = "REQUIRE_APPROVAL"
message = "A person must agree before a message leaves that may tell what is CONFIDENTIAL."
"""

#: What lies in the clerk's workspace and may be told to few.
SECRET = """\
The quarter, for the board and its auditor
Revenue came to four million and a half.
The loss of the northern branch is not yet known to anybody outside.
"""

#: A row of a document's table of words: the word, and what it means.
_WORD = re.compile(r"\| \*\*(.+?)\*\* \| (.+) \|")


def documents(root: Path = _ROOT) -> list[Path]:
    """The project's documents, README.md first.

    Raises:
        NotFound: when this installation has none.
    """
    missing = [name for name in _NEEDED if not (root / name).is_file()]
    if missing:
        raise NotFound(
            f"The documents that the demo works through are not installed: {root} has no "
            f"{', '.join(missing)}.",
            "Clone the repository and run `make demo` there; a wheel holds the code alone.",
        )
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def dictation(root: Path = _ROOT) -> list[str]:
    """What is dictated: the words of the field, each with its meaning."""
    text = (root / DICTATED).read_text("utf-8")
    return [f"{word}. {meaning}" for word, meaning in _WORD.findall(text)]


def story_for(settings: Settings) -> Story:
    """The story as the lead's model understands it."""
    return REHEARSED if models_of(settings)[0] == REHEARSAL else PLAIN


def models_of(settings: Settings) -> tuple[str, ...]:
    """The models that play."""
    return settings.agent(AGENTS[LEAD]).models


def check_home(home: Path) -> Path:
    """`home` as an absolute path, when it is new or an empty folder.

    Raises:
        Conflict: when there is something in it.
        InvalidArgument: when it is no folder.
    """
    home = home.expanduser().absolute()
    if home.exists() and not home.is_dir():
        raise InvalidArgument(f"The home {home} is a file, not a folder.")
    if home.exists() and any(home.iterdir()):
        raise Conflict(
            f"The home {home} is not empty, and the demo needs a fresh one.",
            "Name a new folder, or leave --home out.",
        )
    return home


def set_up(home: Path) -> Settings:
    """Furnish a fresh home, and return its settings.

    Every PERDURE_* variable but the model's is dropped from this process's environment, which the
    stack's processes inherit: they must read the same settings.

    Raises:
        NotFound: when the documents are not installed.
        InvalidArgument: when PERDURE_MODEL is wrong.
    """
    found = documents()
    for name in [name for name in os.environ if name.startswith("PERDURE_")]:
        if name not in _KEPT_VARIABLES:
            del os.environ[name]
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "perdure.toml").write_text(_SETTINGS, "utf-8")
    workspace = workspace_of(home)
    for path in found:
        target = workspace / path.relative_to(found[0].parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    Workspace.for_session(home, CLERK).write("finance/quarter.md", SECRET)
    return load_settings(home)


def workspace_of(home: Path) -> Path:
    """The folder in which the lead agent works."""
    return Workspace.for_session(home, LEAD).root
