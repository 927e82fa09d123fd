"""Schedules: a message or a spawn at its time, once, through the client, HTTP and the CLI."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from activities.scheduling import ScheduledWork
from gateway.schedule_views import ScheduleView
from perdure.domain.access import Caller, Scope
from perdure.domain.errors import Conflict, Denied, InvalidArgument, NotFound
from perdure.domain.labels import Label
from perdure.domain.schedules import FireOutcome, ScheduledFire, ScheduleKind
from perdure.store.clock import now
from tests.support.gateway import running_gateway
from tests.support.in_process import perdure_here
from tests.support.stack import Stack, fresh_key, until
from tests.support.watching import transcript


def fresh_name() -> str:
    return f"s-{time.time_ns()}"


async def said(stack: Stack, key: str) -> list[str]:
    try:
        return [message.text for message in await transcript(stack, key)]
    except NotFound:
        return []


async def test_a_message_is_sent_at_its_times_and_its_text_is_not_in_temporal(
    stack: Stack,
) -> None:
    name, key = fresh_name(), fresh_key("ticks")
    schedules = stack.client.schedules
    added = await schedules.add(name, key, "/say a secret tick", every=1)
    assert (added.state, added.every, len(added.next_at)) == ("active", 1, 5)

    async def answered_twice() -> bool:
        return (await said(stack, key)).count("a secret tick") >= 2

    await until(answered_twice)
    await schedules.pause(name, note="enough")
    view = await schedules.get(name)
    assert (view.state, view.note, view.next_at) == ("paused", "enough", ())
    messages = [one.id for one in await transcript(stack, key) if one.role == "user"]
    assert len(set(messages)) == len(messages) >= 2
    assert view.last_at is not None
    # What Temporal keeps names the schedule by its number.
    found = 0
    async for run in stack.client.temporal.list_workflows("WorkflowType = 'Scheduled'"):
        history = await stack.client.temporal.get_workflow_handle(run.id).fetch_history()
        assert "secret" not in history.to_json()
        found += 1
    assert found
    await schedules.remove(name)
    with pytest.raises(NotFound):
        await schedules.get(name)


async def test_a_trigger_does_it_once_and_a_time_tried_again_is_the_same_message(
    stack: Stack,
) -> None:
    name, key = fresh_name(), fresh_key("once")
    await stack.client.schedules.add(name, key, "/say once", cron="0 9 * * *", paused=True)
    await stack.client.schedules.trigger(name)

    async def answered() -> bool:
        return "once" in await said(stack, key)

    await until(answered)
    row = await stack.client.store.schedules.named("default", name)
    assert row is not None
    (sent,) = [one.id for one in await transcript(stack, key) if one.role == "user"]
    assert sent.startswith(f"sched_{row.number}_")
    # As Temporal would try it again after a lost answer: to the same time belongs the same id.
    work = ScheduledWork(stack.settings, stack.client.store, None, None)  # type: ignore[arg-type]
    at = now().strptime(sent.rpartition("_")[2], "%Y%m%dT%H%M%SZ")
    again = await work.fire_schedule(ScheduledFire(number=row.number, at=at))
    assert (again.outcome, again.message_id) == (FireOutcome.SENT, sent)
    assert (await said(stack, key)).count("/say once") == 1
    assert (await stack.client.schedules.get(name)).times == 1
    await stack.client.schedules.remove(name)
    gone = await work.fire_schedule(ScheduledFire(number=row.number, at=at))
    assert gone.outcome is FireOutcome.REMOVED


async def test_what_waits_already_is_not_said_twice_unless_that_is_wanted(stack: Stack) -> None:
    name, key = fresh_name(), fresh_key("overlap")
    schedules = stack.client.schedules
    await stack.client.send(key, "/sleep 60")
    await schedules.add(name, key, "/say me", every=1)

    async def fired() -> bool:
        return (await schedules.get(name)).times >= 3

    await until(fired)
    assert await stack.client.store.mailbox.count(key) == 1
    await schedules.remove(name)
    await stack.client.interrupt(key)


async def test_a_sub_agent_is_spawned_and_its_result_comes_to_the_session(stack: Stack) -> None:
    name, key = fresh_name(), fresh_key("spawner")
    schedules = stack.client.schedules
    await schedules.add(
        name, key, "/say the report", cron="@daily", paused=True, kind=ScheduleKind.SPAWN
    )
    await schedules.trigger(name)

    async def handed_over() -> bool:
        return any("the report" in text for text in await said(stack, key))

    await until(handed_over)
    (run,) = (await stack.client.runs.list(key)).runs
    assert run.agent == "main"
    await schedules.remove(name)


async def test_what_cannot_be_a_schedule_is_refused_and_leaves_nothing(stack: Stack) -> None:
    key, name = fresh_key("refused"), fresh_name()
    add = stack.client.schedules.add
    for given in (
        {"cron": "every monday"},
        {"cron": "61 * * * *"},
        {"cron": "0 0 31 2 *"},
        {"cron": "* * * * *", "every": 5},
        {},
        {"every": 0},
        {"cron": "0 9 * * *", "timezone": "Mars/Base"},
    ):
        with pytest.raises(InvalidArgument):
            await add(name, key, "/say x", **given)
    with pytest.raises(InvalidArgument, match="not valid Unicode"):
        await add(name, key, "/say \ud800", every=60)
    with pytest.raises(InvalidArgument, match="named"):
        await add("no name", key, "/say x", every=60)
    with pytest.raises(NotFound):
        await stack.client.schedules.get(name)
    await add(name, key, "/say x", cron="0 9 * * MON", timezone="Europe/Berlin")
    with pytest.raises(Conflict):
        await add(name, key, "/say y", every=60)
    view = await stack.client.schedules.get(name)
    # Nine o'clock in Berlin is eight or seven in UTC.
    assert {at.hour for at in view.next_at} <= {7, 8}
    assert {at.weekday() for at in view.next_at} == {0}
    await stack.client.schedules.remove(name)


async def test_schedules_over_http_and_on_the_command_line(stack: Stack) -> None:
    name, key = fresh_name(), fresh_key("ways")

    async def cli(*arguments: str, code: int = 0) -> dict[str, Any]:
        ran = await perdure_here(
            "schedule", *arguments, "--json", home=stack.home, environ=stack.environ
        )
        assert ran.code == code, ran
        document: dict[str, Any] = json.loads(ran.out)
        return document

    async with running_gateway(stack) as gateway, gateway.client() as http:
        body = {"name": name, "session_key": key, "text": "/say by http", "every": 3600}
        added = await http.post("/v1/schedules", json=body)
        assert added.status_code == 201, added.text
        assert (await http.post("/v1/schedules", json=body)).status_code == 409
        wrong = await http.post("/v1/schedules", json={**body, "name": "x", "cron": "x"})
        assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_argument")
        page = (await http.get("/v1/schedules", params={"limit": 100})).json()
        assert name in [one["name"] for one in page["schedules"]]
        assert (await http.post(f"/v1/schedules/{name}/pause")).json()["state"] == "paused"
        assert (await http.post(f"/v1/schedules/{name}/resume")).json()["state"] == "active"
        triggered = await http.post(f"/v1/schedules/{name}/trigger")
        ScheduleView.model_validate(triggered.json())
        other = await http.get(f"/v1/schedules/{name}", params={"tenant": "acme"})
        assert other.status_code == 404

        async def answered() -> bool:
            return "by http" in await said(stack, key)

        await until(answered)
        shown = await cli("show", name)
        assert (shown["session_key"], shown["every"]) == (key, 3600)
        assert (await http.delete(f"/v1/schedules/{name}")).status_code == 204
    refused = await cli("show", name, code=3)
    assert refused["error"]["code"] == "not_found"
    added_here = await cli("add", name, key, "/say x", "--every", "2h", "--paused")
    assert (added_here["every"], added_here["state"]) == (7200, "paused")
    plain = await perdure_here("schedule", "list", home=stack.home, environ=stack.environ)
    assert name in plain.out
    assert await cli("remove", name, "--yes") == {"name": name, "removed": True}


async def test_a_caller_has_the_schedules_of_their_tenant_and_level(stack: Stack) -> None:
    caller = Caller(
        name="acme-bot",
        key_id="acme",
        tenant="acme",
        scopes=frozenset({Scope.STEER}),
        clearance=Label.PUBLIC,
    )
    theirs = stack.client.on_behalf_of(caller).schedules
    mine, name = stack.client.schedules, fresh_name()
    secret = f"acme:secret-{time.time_ns()}"
    await stack.client.ask(secret, "/say up", label=Label.INTERNAL)
    await mine.add(f"{name}-hidden", secret, "/say x", every=3600)
    await mine.add(name, fresh_key("default"), "/say x", every=3600)
    added = await theirs.add(name, f"acme:new-{name}", "/say x", every=3600)
    assert (added.tenant, added.created_by) == ("acme", "acme-bot (acme)")
    assert [one.name for one in (await theirs.list()).schedules] == [name]
    assert (await theirs.list()).total == 1
    for refused in (theirs.get(f"{name}-hidden"), theirs.get(name, tenant="default")):
        with pytest.raises(NotFound):
            await refused
    with pytest.raises(NotFound):
        await theirs.add("other", "default:bob", "/say x", every=3600)
    with pytest.raises(Denied):
        await theirs.add("up", "acme:up", "/say x", every=3600, label=Label.INTERNAL)
    await theirs.remove(name)
    for left in (name, f"{name}-hidden"):
        await mine.remove(left, tenant="acme" if left != name else None)
