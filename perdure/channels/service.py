"""The channels of apprise: whatever service its URL names.

Invariant: apprise is the only thing here that knows the services, and it is believed only when it
reports success. It does not tell how far a failed delivery came, so a failure is unknown.
"""

from __future__ import annotations

from urllib.parse import quote

import apprise

from perdure.channels.outcomes import (
    Carrier,
    DeliveryRefused,
    DeliveryUnknown,
    Parcel,
    Receipt,
)
from perdure.channels.urls import PLACEHOLDER, Service, check_address
from perdure.domain.errors import InvalidArgument

#: Seconds that apprise may take for one message.
_SECONDS = 25.0

_STATUS = apprise.AppriseResultStatus


def service(channel: str, target: Service) -> Carrier:
    """The carrier of an apprise URL.

    Raises:
        InvalidArgument: apprise does not know such a URL.
    """
    if not target.addressed and _opened(target.url) is None:
        raise InvalidArgument(
            f"The url of the channel {channel} is none that apprise {apprise.__version__} knows.",
            "See https://github.com/caronc/apprise/wiki for the services and their URLs.",
        )

    async def deliver(parcel: Parcel) -> Receipt:
        opened = _opened(_url_for(target, parcel.address))
        if opened is None:
            raise DeliveryRefused("The service knows no such recipient.", "Check the recipient.")
        result = await apprise.Apprise(opened, asset=opened.asset).async_notify(
            body=parcel.text, body_format=apprise.NotifyFormat.TEXT
        )
        if result.status != _STATUS.SUCCESS:
            raise DeliveryUnknown(
                "The service's library reports a failure and not how far it came."
            )
        return Receipt()

    return deliver


def _opened(url: str) -> apprise.NotifyBase | None:
    # Nothing is kept on disk, no plugin is loaded from it, and no URL is logged in full.
    asset = apprise.AppriseAsset(
        app_id="Perdure",
        app_desc="Perdure",
        http_redirects=False,
        interpret_escapes=False,
        service_timeout=_SECONDS,
        storage_mode=apprise.PersistentStoreMode.MEMORY,
        secure_logging=True,
    )
    return apprise.Apprise.instantiate(url, asset=asset)


def _url_for(target: Service, address: str) -> str:
    if not target.addressed:
        return target.url
    try:
        check_address(target, address)
    except ValueError as error:
        raise DeliveryRefused(f"The recipient's address {error}.") from None
    return target.url.replace(PLACEHOLDER, quote(address, safe=""))
