"""The perdure.toml that `perdure init` writes: every key, explained, at its default."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from perdure.config.load import FILE_NAME
from perdure.domain.errors import Conflict, InvalidArgument

#: It parses to exactly the defaults. A line `#key = value` is a key left at its default or
#: without one, a line `#[table]` an example; a comment that is prose has a space after its `#`.
DEFAULT_TOML = files("perdure.config").joinpath("default.toml").read_text("utf-8")


def write_default(home: Path) -> Path:
    """Write the commented perdure.toml into `home`, which is made if need be.

    Only the owner may read the file, since settings may hold passwords.

    Raises:
        Conflict: if there is one already; it is left as it is.
        InvalidArgument: if `home` cannot hold files.
    """
    path = home.expanduser().absolute() / FILE_NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(DEFAULT_TOML, "utf-8")
    except FileExistsError:
        if not path.parent.is_dir():
            raise InvalidArgument(f"The home {path.parent} is a file, not a folder.") from None
        raise Conflict(
            f"{path} exists already and is left as it is.", "Edit it, or choose another --home."
        ) from None
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be written: {error.strerror}.") from None
    return path
