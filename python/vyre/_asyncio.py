"""Launches under asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._vyre import Launch


async def wait_for_launch(launch: Launch) -> Any:
    """Waits without a thread: the engine calls back when the launch is over. Cancelling the task cancels the launch."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def tell() -> None:
        if not over.done():
            over.set_result(None)

    def from_engine() -> None:
        try:
            loop.call_soon_threadsafe(tell)
        except RuntimeError:  # The loop was closed meanwhile, so nobody waits.
            pass

    launch.on_done(from_engine)
    try:
        await over
    except asyncio.CancelledError:
        launch.cancel()
        raise
    return launch.wait()
