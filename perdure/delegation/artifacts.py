"""The files that a parent hands to a child: looked at before anything is spawned, copied after.

Invariant: nothing is handed over but regular files of the parent's workspace, by the content they
had when the child was ordered. A copy takes the level of its file along.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from perdure.delegation.packet import Artifact
from perdure.domain.errors import Conflict, InvalidArgument, LimitExceeded, PerdureError
from perdure.domain.labels import Label, join
from perdure.workspace import Workspace
from perdure.workspace.paths import quoted

#: Files of one spawn. A packet with as many paths stays under 100 kB.
MOST_FILES = 100
#: Bytes of one spawn's files; one of them may have `limits.file_bytes`.
MOST_BYTES = 100_000_000
#: Bad references told in one refusal: enough to mend a call, short enough to read.
_MOST_TOLD = 10

_WHAT = "artifact_refs are paths of files in your own workspace, as in notes/plan.md."


def manifest(
    workspace: Workspace,
    refs: Sequence[str],
    label_of: Callable[[str], Label],
    *,
    most_bytes: int = MOST_BYTES,
) -> tuple[Artifact, ...]:
    """What `refs` name in the parent's `workspace`, each file once, in their order.

    `label_of` tells the level of a path of the workspace. Links that stay inside are followed:
    the child gets the content under the name that was asked for. Reads the files: call it in a
    thread.

    Raises:
        InvalidArgument: naming every reference that is not such a file, and why.
        LimitExceeded: there are more than `MOST_FILES`, or they are larger than `most_bytes`.
    """
    if len(refs) > MOST_FILES:
        raise LimitExceeded(
            f"{len(refs)} artifact_refs were given; the limit is {MOST_FILES}.",
            "Put what belongs together into one file.",
        )
    found: dict[str, Artifact] = {}
    wrong: list[str] = []
    size = 0
    for ref in refs:
        try:
            artifact = _artifact(workspace, ref, label_of)
        except PerdureError as error:
            wrong.append(f"{quoted(ref)}: {error.message}")
            continue
        size += artifact.size if artifact.path not in found else 0
        found.setdefault(artifact.path, artifact)
    if wrong:
        told = wrong[:_MOST_TOLD]
        if len(wrong) > _MOST_TOLD:
            told.append(f"and {len(wrong) - _MOST_TOLD} more")
        raise InvalidArgument(f"Nothing was spawned. {' '.join(told)}", _WHAT)
    if size > most_bytes:
        raise LimitExceeded(
            f"The artifact_refs have {size} bytes together; the limit is {most_bytes}.",
            "Hand over fewer files, or a part of them.",
        )
    return tuple(found.values())


def levels(artifacts: Sequence[Artifact]) -> dict[str, Label]:
    """The levels of the child's files, by path, to be recorded before they are copied; a file
    that is PUBLIC needs no record."""
    return {
        artifact.path: artifact.label
        for artifact in artifacts
        if artifact.label is not Label.PUBLIC
    }


def copy(
    source: Workspace,
    target: Workspace,
    artifacts: Sequence[Artifact],
    otherwise: Workspace | None = None,
) -> None:
    """Put the files of a manifest from the parent's workspace into the child's, each at once.

    Again, it does nothing: a file that is there with its content is not copied, also when its
    origin has changed or gone meanwhile. Such a file is taken from `otherwise` if it is there: a
    run that takes another's place finds it in the workspace of that one. Blocks on the file
    system: call it in a thread.

    Raises:
        Conflict: a file has another content than when the child was ordered.
        PerdureError: a file cannot be read or written any more.
    """
    for artifact in artifacts:
        if _is_there(target, artifact):
            continue
        place = source
        if otherwise is not None and not _is_there(source, artifact):
            place = otherwise if _is_there(otherwise, artifact) else source
        target.write_bytes(artifact.path, _unchanged(place, artifact))


def _artifact(workspace: Workspace, ref: str, label_of: Callable[[str], Label]) -> Artifact:
    place = workspace.place(ref)
    data = workspace.read_bytes(place)
    names = [name for name in ref.split("/") if name not in ("", ".")]
    # What `..` after a link means depends on where the link leads: then the place itself.
    path = place if ".." in names else "/".join(names)
    return Artifact(
        path=path,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        label=join(label_of(path), label_of(place)),
    )


def _unchanged(source: Workspace, artifact: Artifact) -> bytes:
    data = source.read_bytes(artifact.path)
    digest = hashlib.sha256(data).hexdigest()
    if digest != artifact.sha256:
        raise Conflict(
            f"The artifact {quoted(artifact.path)} has changed since the spawn: it had "
            f"{artifact.size} bytes with the sha256 {artifact.sha256[:12]}…, now it has "
            f"{len(data)} with {digest[:12]}….",
            "Spawn again, and leave the file alone until the child has begun.",
        )
    return data


def _is_there(workspace: Workspace, artifact: Artifact) -> bool:
    try:
        data = workspace.read_bytes(artifact.path)
    except PerdureError:
        return False  # copying it will tell, if there is more to it than that
    return hashlib.sha256(data).hexdigest() == artifact.sha256
