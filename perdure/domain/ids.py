"""Identifiers made by us: ULIDs, so that they sort by the time they were made."""

from __future__ import annotations

import re

from ulid import ULID

from perdure.domain.errors import InvalidArgument

#: A caller's own message id: anything printable that fits in a database index.
_MESSAGE_ID = re.compile(r"(?!(?:ans|res|end)_)[\x21-\x7e]{1,128}")


def new_message_id() -> str:
    """A fresh message id. Not for workflows: they take ids from activities and clients."""
    return f"msg_{ULID()}"


def check_message_id(message_id: str) -> str:
    """`message_id` itself, when it may serve as the key of a message.

    Raises:
        InvalidArgument: unless it is 1 to 128 printable ASCII characters without spaces.
    """
    if not _MESSAGE_ID.fullmatch(message_id):
        raise InvalidArgument(
            f"The message id {message_id[:80]!r} cannot be used.",
            "An id is 1 to 128 printable ASCII characters without spaces, and does not begin with "
            "ans_, res_ or end_, which name answers.",
        )
    return message_id


def new_delivery_id() -> str:
    """A fresh delivery id, under which the receiver knows a message and its repetitions."""
    return f"dlv_{ULID()}"


def new_run_id(agent: str) -> str:
    """A fresh run id, `run_<agent>_<ulid>`. Not for workflows: activities make it."""
    return f"run_{agent}_{ULID()}"
