"""Tools written by users: plain Python functions, found by reference or by entry point.

Invariant: a function becomes a tool only with a complete spec, and a call always ends in its
value or in an ordinary exception, whatever the function does to its thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import inspect
import re
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from pydantic import BaseModel

from perdure.domain.errors import Conflict, InvalidArgument
from perdure.domain.steps import Lane
from perdure.tools.signature import ToolContext, read_signature
from perdure.tools.spec import Effect, ToolSpec, shown

#: The entry-point group in which packages announce their tools.
ENTRY_POINTS = "perdure.tools"

DEFAULT_GROUP = "user"

_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_TRAITS = "__perdure_tool__"

#: A pool of their own: a tool that blocks for hours must not starve the threads that store
#: writes and file tools use. Threads start only with the first call.
_THREADS = ThreadPoolExecutor(max_workers=64, thread_name_prefix="perdure-tool")

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class _Traits:
    name: str | None = None
    group: str = DEFAULT_GROUP
    effect: Effect = Effect.ONCE
    timeout: float | None = None


def tool(
    *,
    name: str | None = None,
    group: str = DEFAULT_GROUP,
    effect: Effect = Effect.ONCE,
    timeout: float | None = None,
) -> Callable[[_F], _F]:
    """Say what is special about a tool function; the function itself stays as it is.

    Args:
        name: what models call it; the function's own name by default.
        group: the group under which an agent's `tools` setting may name it.
        effect: what running it twice would mean. ONCE, the default, is the careful answer.
        timeout: seconds one call may take; the configured `tool_timeout` by default.
    """

    def mark(function: _F) -> _F:
        setattr(function, _TRAITS, _Traits(name, group, Effect(effect), timeout))
        return function

    return mark


@dataclass(frozen=True)
class UserTool:
    """A user's function with its spec. `context_parameter` receives the ToolContext, if any."""

    spec: ToolSpec
    function: Callable[..., Any]
    context_parameter: str | None = None

    async def call(self, arguments: BaseModel, context: ToolContext | None = None) -> Any:
        """What the function returns for `arguments`, as parsed by the spec.

        No function runs on the caller's thread, so that one that blocks holds up nobody else: an
        async one runs on an event loop that all of them share, any other in a thread, which a
        cancellation leaves running. Exceptions pass through; what would end the loop or look like
        a cancellation of the caller (StopIteration, SystemExit, a CancelledError of its own) is a
        RuntimeError.

        Raises:
            InvalidArgument: the function wants a context and none was given.
        """
        values = {
            info.alias or field: getattr(arguments, field)
            for field, info in type(arguments).model_fields.items()
        }
        if self.context_parameter is not None:
            if context is None:
                raise InvalidArgument(f"The tool {self.spec.name} needs a ToolContext.")
            values[self.context_parameter] = context
        if inspect.iscoroutinefunction(self.function):
            return await _on_loop(self.function(**values))
        run = contextvars.copy_context().run
        result = await asyncio.get_running_loop().run_in_executor(
            _THREADS, lambda: run(_contained, self.function, values)
        )
        # A decorated async function may look like a plain one until it is called.
        return await _on_loop(result) if inspect.isawaitable(result) else result


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of async tools, on a thread of its own: whoever blocks it blocks no
    heartbeat. One for all and for ever, since a client belongs to the loop that opened it."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="perdure-tools", daemon=True).start()
    return loop


async def _on_loop(awaitable: Awaitable[Any]) -> Any:
    # The caller's context variables go along, and so does its cancellation.
    future = asyncio.run_coroutine_threadsafe(_contained_await(awaitable), _loop())
    return await asyncio.wrap_future(future)


async def _contained_await(awaitable: Awaitable[Any]) -> Any:
    try:
        return await awaitable
    except Exception:
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise _ended(error) from error


def _contained(function: Callable[..., Any], values: dict[str, Any]) -> Any:
    # A future carries none of these: StopIteration leaves the caller waiting for ever, and
    # whatever is not an Exception stops the event loop and with it the worker.
    try:
        return function(**values)
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            raise
        raise _ended(error) from error


def _ended(error: BaseException) -> RuntimeError:
    return RuntimeError(f"The tool raised {type(error).__name__}({error}) and returned nothing.")


def from_function(function: Callable[..., Any]) -> UserTool:
    """The tool that `function` is, with the traits of `@tool` or the careful defaults.

    Raises:
        InvalidArgument: its signature cannot be described to a model.
    """
    traits = getattr(function, _TRAITS, _Traits())
    signature = read_signature(function)
    spec = ToolSpec(
        name=traits.name or function.__name__,
        description=signature.description,
        group=traits.group,
        parameters=signature.parameters,
        lane=Lane.ACTIVITY,
        effect=traits.effect,
        timeout=traits.timeout,
        workspace=signature.context_parameter is not None,
    )
    return UserTool(spec, function, signature.context_parameter)


def is_reference(text: str) -> bool:
    """Whether `text` has the form `module:function`."""
    return _REFERENCE.fullmatch(text) is not None


def load(reference: str) -> UserTool:
    """The tool at `module:function`. Imports the module: for settings, never for models' words.

    Raises:
        InvalidArgument: the reference leads nowhere, its module cannot be imported, or what is
            there cannot be a tool.
    """
    if not is_reference(reference):
        raise InvalidArgument(
            f"The tool reference {shown(reference)} is not of the form module:function."
        )
    module_name, _, path = reference.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # importing runs the module's own code
        raise InvalidArgument(
            f"The tool {reference} cannot be loaded: importing {module_name} raised "
            f"{type(error).__name__}: {error}.",
            "Check the spelling, and that the module is installed in this environment.",
        ) from error
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise InvalidArgument(
                f"The tool {reference} cannot be loaded: {part} is not there.",
                f"Check what the module {module_name} defines.",
            ) from None
    if not inspect.isroutine(found):
        raise InvalidArgument(f"The tool {reference} is not a function but {shown(found)}.")
    return from_function(found)


def discover() -> dict[str, UserTool]:
    """Every tool that an installed package announces under `perdure.tools`, by tool name.

    Raises:
        InvalidArgument: an announced tool cannot be loaded; the entry point is named.
        Conflict: two different functions claim one name.
    """
    found: dict[str, UserTool] = {}
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            loaded = load(f"{entry.module}:{entry.attr}")
        except InvalidArgument as error:
            raise InvalidArgument(
                f"The entry point {entry.name} = {entry.value} is no tool. {error.message}",
                error.hint or "Mend or uninstall the package that announces it.",
            ) from error
        other = found.setdefault(loaded.spec.name, loaded)
        if other.function is not loaded.function:
            raise Conflict(
                f"Two installed packages announce a tool {loaded.spec.name}; "
                f"one is {entry.name} = {entry.value}.",
                "Rename one with @tool(name=…).",
            )
    return found
