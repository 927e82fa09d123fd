"""A session's turns while they happen: whoever shows the pieces shows the answer once, whole."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable

import pytest

from gateway.live import (
    LiveItem,
    LiveSession,
    MessageDropped,
    Restart,
    Retrying,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from perdure.domain.envelopes import Envelope
from perdure.domain.errors import Refusal
from perdure.domain.ids import new_message_id
from perdure.domain.messages import ToolCall
from perdure.domain.states import ToolStatus, TurnState
from perdure.domain.steps import (
    OpenSession,
    PlannedCall,
    SessionReset,
    StepRequest,
    ToolRequest,
    TurnEnd,
)
from perdure.store import Store
from perdure.store.claims import Result, Ruling, Verdict
from perdure.store.turns import StepAnswer

KEY = "default:live"


class Scene:
    """A session whose turns the test plays by hand, on the real store, as a worker would."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.turn = 0

    async def message(self, text: str = "hello") -> str:
        """Lay a message into the mailbox."""
        message_id = new_message_id()
        await self.store.mailbox.post(KEY, Envelope(message_id=message_id), text)
        return message_id

    async def begin(self) -> StepRequest:
        """Begin the first step of a new turn."""
        self.turn += 1
        request = StepRequest(
            session_key=KEY, agent="main", turn=self.turn, step=1, message_id=await self.message()
        )
        await self.store.turns.begin_step(request)
        return request

    async def stream(
        self, request: StepRequest, text: str, attempt: int = 1, model: int = 0
    ) -> None:
        """Write a piece of streamed text, as the `model`-th of a chain."""
        await self.store.deltas.write(request, attempt * 100 + model, text)

    async def commit(
        self, request: StepRequest, text: str, *calls: ToolCall, state: TurnState | None = None
    ) -> None:
        """Commit the answer of a step; without calls it ends the turn."""
        ended = None if calls else TurnState.COMPLETED
        await self.store.turns.commit_step(
            request,
            StepAnswer(
                text=text,
                tool_calls=calls,
                planned=tuple(
                    PlannedCall(call=number, tool=call.name) for number, call in enumerate(calls)
                ),
                model="test",
                ended=state or ended,
            ),
        )

    async def fail(self, request: StepRequest) -> None:
        """End the turn without an answer."""
        await self.store.turns.end_turn(
            TurnEnd(
                session_key=KEY,
                turn=request.turn,
                message_id=request.message_id,
                state=TurnState.FAILED,
                reason=Refusal(code="unavailable", message="It broke."),
            )
        )

    async def committed(self) -> dict[tuple[int, int], str]:
        """The text of every committed step."""
        page = await self.store.transcript.page(KEY, 200, 0)
        answers = (message for message in page.messages if message.id.startswith("ans_"))
        return {place_of(message.id): message.text for message in answers if message.text}


def place_of(answer_id: str) -> tuple[int, int]:
    turn, step = answer_id.removeprefix("ans_").split("_")
    return int(turn), int(step)


def shown(items: Iterable[LiveItem], text: dict[tuple[int, int], str] | None = None):  # type: ignore[no-untyped-def]
    """What somebody who follows the rules has on the screen, by (turn, step)."""
    text = dict(text or {})
    for item in items:
        if isinstance(item, TextDelta):
            text[item.turn, item.step] = text.get((item.turn, item.step), "") + item.text
        elif isinstance(item, Restart):
            text.pop((item.turn, item.step), None)
    return text


class Watcher:
    """Collects what a live session tells, in the background."""

    def __init__(self, live: LiveSession) -> None:
        self.items: list[LiveItem] = []
        self._task = asyncio.create_task(self._watch(live))

    async def _watch(self, live: LiveSession) -> None:
        async for item in live:
            self.items.append(item)

    async def seen(self, kind: type, count: int = 1) -> LiveItem:
        """Wait for the `count`-th item of a kind."""
        async with asyncio.timeout(20):
            while True:
                found = [item for item in self.items if isinstance(item, kind)]
                if len(found) >= count:
                    return found[count - 1]
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.01)

    async def said(self, text: str) -> None:
        """Wait until `text` is the end of what is shown of the newest step."""
        async with asyncio.timeout(20):
            while not "".join(shown(self.items).values()).endswith(text):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def close(self) -> None:
        self._task.cancel()


@pytest.fixture
async def scene(store_url: str) -> AsyncIterator[Scene]:
    store = await Store.open(store_url)
    await store.sessions.open(OpenSession(session_key=KEY, agent="main"))
    yield Scene(store)
    await store.close()


@pytest.fixture
async def live(scene: Scene) -> AsyncIterator[Watcher]:
    async with LiveSession(scene.store, KEY, after=0) as session:
        watcher = Watcher(session)
        yield watcher
        watcher.close()


def texts(items: Iterable[LiveItem]) -> list[str]:
    return [item.text if isinstance(item, TextDelta) else "↻" for item in items if _is_text(item)]


def _is_text(item: LiveItem) -> bool:
    return isinstance(item, TextDelta | Restart)


async def test_streamed_text_is_not_told_again_when_its_answer_commits(
    scene: Scene, live: Watcher
) -> None:
    step = await scene.begin()
    await scene.stream(step, "Hel")
    await scene.stream(step, "lo")
    await live.said("Hello")
    await scene.commit(step, "Hello world")
    end = await live.seen(TurnEnded)
    assert texts(live.items) == ["Hel", "lo", " world"]
    assert isinstance(end, TurnEnded)
    assert end.result.text == "Hello world"


async def test_an_answer_that_was_not_streamed_is_told_when_it_commits(
    scene: Scene, live: Watcher
) -> None:
    await scene.commit(await scene.begin(), "All at once.")
    await live.seen(TurnEnded)
    assert texts(live.items) == ["All at once."]


async def test_another_model_of_the_chain_replaces_what_the_first_one_said(
    scene: Scene, live: Watcher
) -> None:
    step = await scene.begin()
    await scene.stream(step, "wrong")
    await live.said("wrong")
    await scene.stream(step, "right", model=1)
    await live.said("right")
    await scene.commit(step, "right")
    await live.seen(TurnEnded)
    assert texts(live.items) == ["wrong", "↻", "right"]


async def test_a_retry_is_told_and_its_text_replaces_the_first_attempts(
    scene: Scene, live: Watcher
) -> None:
    step = await scene.begin()
    await scene.stream(step, "wrong")
    await live.said("wrong")
    await scene.store.turns.retrying(step, 1, 5.0, "rate limited")
    retry = await live.seen(Retrying)
    await scene.store.turns.begin_step(step)
    await live.seen(Restart)
    # What the first attempt still says, from a worker that does not know it was given up.
    await scene.stream(step, "more that is wrong", attempt=1)
    await scene.stream(step, "right", attempt=2)
    await live.said("right")
    await scene.commit(step, "right")
    await live.seen(TurnEnded)
    assert isinstance(retry, Retrying)
    assert (retry.attempt, retry.delay, retry.reason) == (1, 5.0, "rate limited")
    assert texts(live.items) == ["wrong", "↻", "right"]


async def test_an_answer_that_differs_from_what_was_streamed_is_told_whole(
    scene: Scene, live: Watcher
) -> None:
    step = await scene.begin()
    await scene.stream(step, "the secret is 42")
    await live.said("42")
    await scene.commit(step, "the secret is [withheld]")
    await live.seen(TurnEnded)
    assert texts(live.items) == ["the secret is 42", "↻", "the secret is [withheld]"]


async def test_text_of_a_step_that_never_committed_is_void_when_its_turn_fails(
    scene: Scene, live: Watcher
) -> None:
    step = await scene.begin()
    await scene.stream(step, "half an answ")
    await live.said("answ")
    await scene.fail(step)
    end = await live.seen(TurnEnded)
    assert shown(live.items) == {}
    assert isinstance(end, TurnEnded)
    assert end.result.error is not None


async def test_text_left_by_a_failed_turn_is_no_part_of_the_next(
    scene: Scene, live: Watcher
) -> None:
    step = await scene.begin()
    await scene.fail(step)
    await scene.stream(step, "too late")
    following = await scene.begin()
    await scene.stream(following, "in time")
    await live.said("in time")
    await scene.commit(following, "in time")
    await live.seen(TurnEnded, 2)
    assert texts(live.items) == ["in time"]


async def test_tool_calls_are_told_with_their_arguments_and_what_became_of_them(
    scene: Scene, live: Watcher
) -> None:
    step = await scene.begin()
    calls = (
        ToolCall(id="a", name="read", arguments='{"path": "x"}'),
        ToolCall(id="b", name="ls", arguments='{"path": "."}'),
    )
    await scene.commit(step, "I look.", *calls)
    for number, (status, text) in enumerate(
        [(ToolStatus.ERROR, '{"error": {"message": "There is no x."}}'), (ToolStatus.OK, "[]")]
    ):
        request = ToolRequest(session_key=KEY, agent="main", turn=1, step=1, call=number)
        look = await scene.store.claims.look(request)
        await scene.store.claims.claim(request, Ruling(verdict=Verdict.RUN, call=look.call))
        await scene.store.claims.seal(request, look.call, Result(status=status, text=text))
    await live.seen(ToolEnded, 2)
    started = [item for item in live.items if isinstance(item, ToolStarted)]
    ended = [item for item in live.items if isinstance(item, ToolEnded)]
    assert [(item.tool, item.arguments) for item in started] == [
        ("read", '{"path": "x"}'),
        ("ls", '{"path": "."}'),
    ]
    assert [(item.tool, item.status, item.error) for item in ended] == [
        ("read", "error", "There is no x."),
        ("ls", "ok", None),
    ]
    assert all(item.seconds is not None and item.seconds >= 0 for item in ended)
    assert texts(live.items) == ["I look."]


async def test_a_message_that_a_reset_discards_is_told(scene: Scene, live: Watcher) -> None:
    message_id = await scene.message()
    await scene.store.sessions.reset(
        SessionReset(session_key=KEY, request_id="r", dropped=(message_id,))
    )
    dropped = await live.seen(MessageDropped)
    assert isinstance(dropped, MessageDropped)
    assert dropped.message_id == message_id


async def test_workers_stream_while_somebody_listens_and_not_longer(scene: Scene) -> None:
    async with LiveSession(scene.store, KEY, after=0) as session:
        watcher = Watcher(session)
        assert not await scene.store.deltas.listened(KEY)
        await scene.begin()
        async with asyncio.timeout(20):
            while not await scene.store.deltas.listened(KEY):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        watcher.close()
    assert not await scene.store.deltas.listened(KEY)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_giving_up_on_an_item_loses_none(scene: Scene) -> None:
    impatient: list[LiveItem] = []

    async def watch() -> None:
        async with LiveSession(scene.store, KEY, after=0) as session:
            while not impatient or not isinstance(impatient[-1], TurnEnded):
                waiting = asyncio.create_task(anext(session))
                await asyncio.sleep(random.choice([0, 0, 0.001, 0.003]))
                waiting.cancel()
                await asyncio.wait({waiting})
                if not waiting.cancelled():
                    impatient.append(waiting.result())

    watching = asyncio.create_task(watch())
    step = await scene.begin()
    for number in range(20):
        await scene.stream(step, f"{number} ")
        await asyncio.sleep(0.01)
    call = ToolCall(id="a", name="ls")
    await scene.commit(step, "".join(f"{number} " for number in range(20)), call)
    following = step.model_copy(update={"step": 2})
    await scene.store.turns.begin_step(following)
    await scene.commit(following, "done")
    async with asyncio.timeout(30):
        await watching
    assert shown(impatient) == await scene.committed()
    assert [item for item in impatient if isinstance(item, TurnStarted | TurnEnded)] != []


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happens_the_pieces_make_the_transcript_from_any_cursor_on(
    scene: Scene, live: Watcher, seed: int
) -> None:
    dice = random.Random(seed)
    for _ in range(3):
        step = await scene.begin()
        attempt, model, said = 1, 0, ""
        for _ in range(dice.randrange(12)):
            match dice.choice(["say", "say", "say", "retry", "model", "zombie", "read"]):
                case "say":
                    said += (piece := f"<{dice.randrange(100)}>")
                    await scene.stream(step, piece, attempt, model)
                case "retry":
                    await scene.store.turns.retrying(step, attempt, 0.0, "again")
                    await scene.store.turns.begin_step(step)
                    attempt, model, said = attempt + 1, 0, ""
                case "model":
                    model, said = model + 1, ""
                case "zombie" if attempt > 1:
                    await scene.stream(step, "<undead>", attempt - 1, 0)
                case "read":
                    await asyncio.sleep(dice.choice([0.0, 0.07, 0.15]))
        match dice.choice(["as said", "more", "other", "fail"]):
            case "as said":
                await scene.commit(step, said)
            case "more":
                await scene.commit(step, said + "<end>")
            case "other":
                await scene.commit(step, "<other>")
            case "fail":
                await scene.fail(step)
    await live.seen(TurnEnded, 3)
    committed = await scene.committed()
    assert shown(live.items) == committed
    for index, item in enumerate(live.items):
        if isinstance(item, TurnEnded) and item is live.items[-1]:
            continue
        async with LiveSession(scene.store, KEY, after=item.cursor) as session:
            later = Watcher(session)
            ends = sum(isinstance(one, TurnEnded) for one in live.items[index + 1 :])
            await later.seen(TurnEnded, ends)
            later.close()
        assert shown(later.items, shown(live.items[: index + 1])) == committed
