"""What can go wrong, as exceptions. Each has a stable ``code``, the ``message``, a ``fix``, and ``place``: line and column in the source."""

from __future__ import annotations

__all__ = ["VyreError", "InvalidUse", "LaunchTimeout", "LaunchCancelled", "OutOfMemory", "KernelError", "DeviceAbsent", "DeviceLost", "TooNoisy"]


#: A mistake: its code, what it is, what to do, and line and column.
Finding = tuple[str, str, str, tuple[int, int] | None]


class VyreError(Exception):
    """Something was refused or failed."""

    def __init__(
        self,
        code: str,
        message: str,
        fix: str = "",
        shown: str | None = None,
        place: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(shown if shown is not None else f"{code}: {message} Fix: {fix}")
        self.code = code
        self.message = message
        self.fix = fix
        self.place = place
        #: Everything that was found, where that is more than one mistake.
        self.all: list[Finding] = [(code, message, fix, place)]

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, self.message, self.fix, str(self), self.place)


class InvalidUse(VyreError, ValueError):
    """The arguments are wrong; no other device would take them."""


class KernelError(VyreError, ValueError):
    """The kernel's source is wrong."""


class LaunchTimeout(VyreError, TimeoutError):
    """A launch was stopped at its time limit; what it would have written is lost."""


class LaunchCancelled(VyreError):
    """A launch was cancelled; what it would have written is lost."""


class OutOfMemory(VyreError, MemoryError):
    """There is no room, on a device or on the host."""


class DeviceAbsent(VyreError):
    """There is no such device here, or its driver can't be used."""


class DeviceLost(VyreError):
    """A device does not answer any more, and what only it had is lost."""


class TooNoisy(VyreError):
    """Other work made the timings of a comparison too uneven to tell launches apart; nothing was decided or kept."""


_BY_CODE: dict[str, type[VyreError]] = {
    "V0706": LaunchTimeout,
    "V0707": OutOfMemory,
    "V1010": TooNoisy,
    "V1203": DeviceAbsent,
    "V1309": LaunchCancelled,
    "V1501": DeviceAbsent,
    "V1603": DeviceAbsent,
}


def _class_of(code: str, kind: str, place: tuple[int, int] | None) -> type[VyreError]:
    if found := _BY_CODE.get(code):
        return found
    if place is not None:
        return KernelError
    return {"Caller": InvalidUse, "Busy": OutOfMemory, "Device": DeviceLost}.get(kind, VyreError)


def _from_native(
    code: str,
    message: str,
    fix: str,
    shown: str,
    kind: str,
    place: tuple[int, int] | None,
    all: list[Finding] | None = None,
) -> VyreError:
    error = _class_of(code, kind, place)(code, message, fix, shown, place)
    error.all = all or [(code, message, fix, place)]
    return error
