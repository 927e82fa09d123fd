"""The file paths that a text names.

Invariant: pure, linear in the text, and total. A path is found in its own spelling, once.
"""

from __future__ import annotations

import re

#: Longer runs of path characters are data, as in base64, and no path.
_LONGEST = 512

#: An address with a scheme; what it holds is no file of ours.
_ADDRESS = re.compile(r"(?<![\w+.-])[A-Za-z][A-Za-z0-9+.-]{0,20}://\S+")
#: A path with a drive, an escape as in JSON, or a run of characters that a path may be made of.
_RUN = re.compile(r"(?<!\w)[A-Za-z]:\\[\w.\\~+@-]+|\\[nrt]|[\w./~+@-]+")
#: What at the end of a run belongs to the sentence around it.
_SENTENCE = ".-_"

#: Names that are a file's also without a folder: those with a well-known ending.
_FILE_NAME = re.compile(
    r".+\.(?:adoc|bat|bib|bmp|c|cc|cfg|conf|cpp|cs|css|csv|dart|db|diff|docx?|epub|exs?|gif|go|gz|h"
    r"|hpp|hs|html?|ico|ini|ipynb|jar|java|jpe?g|jsx?|json|jsonl|kt|less|log|lua|markdown|md|mjs|ml"
    r"|mp3|mp4|npy|npz|odt|ods|orc|parquet|patch|pdf|php|pkl|pl|png|pptx?|proto|ps1|pyi?|rb|rs|rst"
    r"|sass|scala|scss|sh|sql|sqlite|srt|svg|swift|tar|tex|tgz|tiff?|toml|tsx?|tsv|txt|vue|wav|webp"
    r"|xlsx?|xml|ya?ml|zip|zst)",
    re.IGNORECASE,
)
_NAMES = frozenset({"Dockerfile", "LICENSE", "Makefile", "README"})
_ENDING = re.compile(r"[^./\\]\.([A-Za-z0-9]{1,8})$")
_ROOTED = re.compile(r"(?:~|\.{1,2})/.|[A-Za-z]:\\")


def paths_in(text: str) -> tuple[str, ...]:
    """The file paths in `text`, each once, in the order in which they first appear.

    A path begins at a root (`/`, `~/`, `./`, `../`, `C:\\`), or is in a folder, or is a file name
    with a well-known ending. Web addresses are none, nor are fractions and `and/or`.
    """
    found: dict[str, None] = {}
    for match in _RUN.finditer(_ADDRESS.sub(" ", text)):
        run = match[0].rstrip(_SENTENCE).lstrip("-+@")
        if len(run) <= _LONGEST and _is_path(run):
            found.setdefault(run)
    return tuple(found)


def _is_path(run: str) -> bool:
    ending = _ENDING.search(run)
    name = run.rpartition("/")[2]
    if _ROOTED.match(run):
        return True
    if "//" in run or not name:
        return False
    folders = run.count("/")
    if not folders:
        return name in _NAMES or _FILE_NAME.fullmatch(name) is not None
    if any(part.isdigit() for part in run.split("/")) and ending is None:
        return False  # a date, a fraction
    return folders > 1 or name in _NAMES or (ending is not None and not ending[1].isdigit())
