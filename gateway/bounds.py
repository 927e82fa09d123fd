"""What one who asks may be told, and what they may say: all that follows from who they are.

Invariant: nothing is looked up here, and nothing that they send changes it.
"""

from __future__ import annotations

from perdure.domain.access import Caller, Scope
from perdure.domain.envelopes import Sender
from perdure.domain.errors import Denied
from perdure.domain.labels import Label, can_flow, meet
from perdure.domain.memory import NewEntry, Trust, View
from perdure.store.readers import Reader

#: The tenant of whoever names none.
DEFAULT_TENANT = "default"


class Bounds:
    """The bounds of a caller at a gateway of a level; without a caller, of a person at this
    machine, who may say what they like in any name.

    `level` is the highest label of the words they may be told, `reader` the sessions that are
    there for them: to an overseer all of them, else those of their tenant up to `level`, and those
    that they have written to.
    """

    def __init__(self, gateway: Label, caller: Caller | None = None) -> None:
        self._caller = caller
        who = caller or Caller.local(gateway)
        self.level = meet(gateway, who.clearance)
        self.overseer = who.overseer
        self.reader = Reader(
            level=self.level,
            sees=Label.RESTRICTED if who.overseer else self.level,
            tenant=who.tenant,
            caller=None if who.overseer else who.identity,
        )

    def view(self, tenant: str | None = None, **only: object) -> View:
        """What they see of a tenant's memory; None is their own tenant.

        Raises:
            Denied: as `narrowed` does.
        """
        tenant = tenant or self.reader.tenant or DEFAULT_TENANT
        return self.narrowed(View.model_validate({"tenant": tenant, "label": self.level, **only}))

    def narrowed(self, view: View) -> View:
        """As much of a view of a memory as they see.

        Raises:
            Denied: for the memory of another tenant, whether there is any or not.
        """
        self.check_tenant(view.tenant)
        return view.model_copy(update={"label": meet(view.label, self.level)})

    def check_tenant(self, tenant: str | None) -> None:
        """Check that they may ask for a tenant; None is all of them.

        Raises:
            Denied: when they are of another one, whether there is such a tenant or not.
        """
        if self.reader.tenant not in (None, tenant):
            raise Denied(f"You may ask for the tenant {self.reader.tenant} only.")

    def check_label(self, label: Label) -> None:
        """Check that they may send a message of a label.

        Raises:
            Denied: when it is above their clearance.
        """
        if self._caller is not None and not can_flow(label, self._caller.clearance):
            raise Denied(
                f"A {label} message is above your clearance, {self._caller.clearance}.",
                "Send what is no higher, or use a key with a higher clearance.",
            )

    def check_entry(self, new: NewEntry) -> None:
        """Check that they may have something remembered.

        Raises:
            Denied: of another tenant, above what they may be told, or as if it were the system's.
        """
        self.check_tenant(new.tenant)
        if not can_flow(new.label, self.level):
            raise Denied(
                f"The label {new.label} is above {self.level}, the highest that is told here.",
                "It is the lower one of gateway.level and your clearance.",
            )
        if new.trust is Trust.SYSTEM and self._caller and not self._caller.may(Scope.ADMIN):
            raise Denied("What is trusted as the system's is stored by an admin.")

    def check_key(self, tenant: str | None, clearance: Label) -> None:
        """Check that they may make a key for a tenant, or for every one, with a clearance.

        Raises:
            Denied: when it would be good for more than they are.
        """
        self.check_tenant(tenant)
        if self._caller and not self.overseer and not can_flow(clearance, self._caller.clearance):
            raise Denied(
                f"The clearance {clearance} is above yours, {self._caller.clearance}.",
                "A key is made by somebody who has as much.",
            )

    def sender(self, asked: Sender | None = None) -> Sender:
        """Who sends a message: the caller, if there is one, whatever is asked for."""
        if self._caller is None:
            return asked or Sender()
        return Sender(id=self._caller.name)

    def signed(self, asked: str) -> str:
        """Who does something, as it is recorded: the caller, if there is one."""
        return asked if self._caller is None else self._caller.signature
