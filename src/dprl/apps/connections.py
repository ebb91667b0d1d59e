"""Connections of both servers: how long a stranger may keep one, and how many there may be.

A stranger is a connection on which no request has shown the token yet. Strangers must not keep
others out, so:

* A request's head must arrive whole within `SECONDS_A_HEAD`, and a stranger is gone after
  `SECONDS_A_STRANGER`, whatever it sends or does not read.
* There is room for `MOST_OF_ONE` strangers from one address and `MOST_STRANGERS` in all. When one
  more comes, the one that has been there longest is cut off, never the newest: so whoever asks now
  is heard, even if it calls from the same address as those that only wait.

Connections that have shown the token do not count, and are not cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any, TypeAlias

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from dprl.apps.web import TRUSTED

if TYPE_CHECKING:
    from collections.abc import Callable


SECONDS_A_HEAD = 10.0
"""Seconds within which the head of a request must have arrived."""
SECONDS_A_STRANGER = 30.0
"""Seconds after which a connection that never showed the token is closed."""
SECONDS_TO_FINISH = 5.0
"""Seconds that a stranger has more if an answer to it is under way."""
MOST_OF_ONE = 128
"""Largest number of strangers from one address."""
MOST_STRANGERS = 512
"""Largest number of strangers in all."""

Strange: TypeAlias = "OrderedDict[_Connection, None]"


class Strangers:
    """The connections that have not shown the token, the oldest first.

    Attributes:
        cut: Number of strangers that were cut off to make room.
        late: Number of connections closed because a head did not arrive in time.
        garbled: Number of connections closed because what arrived was not HTTP.
    """

    def __init__(self) -> None:
        self.cut = self.late = self.garbled = 0
        self._all: Strange = OrderedDict()
        self._of: defaultdict[str, Strange] = defaultdict(OrderedDict)

    def __len__(self) -> int:
        return len(self._all)

    def come(self, connection: _Connection) -> None:
        """Take in a new connection; where there are too many, the oldest goes."""
        of_one = self._of[connection.address]
        of_one[connection] = self._all[connection] = None
        if len(of_one) > MOST_OF_ONE:
            self._cut(next(iter(of_one)))
        elif len(self._all) > MOST_STRANGERS:
            self._cut(next(iter(self._all)))

    def go(self, connection: _Connection) -> None:
        """Forget a connection: it has shown the token, or is closed."""
        if connection in self._all:
            del self._all[connection]
            of_one = self._of[connection.address]
            del of_one[connection]
            if not of_one:
                del self._of[connection.address]

    def _cut(self, oldest: _Connection) -> None:
        self.cut += 1
        self.go(oldest)
        oldest.transport.abort()


class _Connection(H11Protocol):
    """One connection, with limits on the time a request's head and a stranger may take."""

    strangers: Strangers
    address = ""
    _head: asyncio.TimerHandle | None = None
    _whole: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._whole = self.loop.call_later(SECONDS_A_STRANGER, self._stranger_stays)
        self.strangers.come(self)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.strangers.go(self)
        for timer in (self._head, self._whole):
            if timer is not None:
                timer.cancel()
        self._head = self._whole = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._watch()

    def handle_events(self) -> None:
        super().handle_events()
        if self.scope is not None:  # the application runs later, so it finds this
            self.scope[TRUSTED] = self._trust  # type: ignore[literal-required]

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP; where an answer is under way already, only close."""
        self.strangers.garbled += 1
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # whoever waits for the rest of the body stops waiting
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            with contextlib.suppress(h11.LocalProtocolError):
                super().send_400_response(msg)
                return
        self.transport.close()

    def shutdown(self) -> None:
        """Close at the end of the server; half a head is no request to be waited for."""
        with contextlib.suppress(h11.LocalProtocolError):
            super().shutdown()
            return
        self.transport.close()

    def _trust(self) -> None:
        """A request on this connection has shown the token."""
        if self._whole is not None:
            self._whole.cancel()
            self._whole = None
        self.strangers.go(self)

    def _watch(self) -> None:
        """Wait for a head for a limited time only."""
        waiting = self.cycle is None or self.cycle.response_complete
        if not waiting or self.transport.is_closing():
            if self._head is not None:
                self._head.cancel()
                self._head = None
        elif self._head is None:
            self._head = self.loop.call_later(SECONDS_A_HEAD, self._late)

    def _late(self) -> None:
        self._head = None
        self.strangers.late += 1
        self.transport.close()

    def _stranger_stays(self) -> None:
        """Close what has been there too long; an answer under way has a few seconds more."""
        busy = self.cycle is not None and not self.cycle.response_complete
        if busy and self.cycle.keep_alive:
            self.cycle.keep_alive = False
            self._whole = self.loop.call_later(SECONDS_TO_FINISH, self._stranger_stays)
            return
        self._whole = None
        self.strangers.late += 1
        self.strangers.go(self)
        self.transport.abort()


def protocol_for(strangers: Strangers) -> Callable[..., asyncio.Protocol]:
    """A class of connections that are counted in `strangers`."""
    kind: Any = type("Connection", (_Connection,), {"strangers": strangers})
    return kind  # type: ignore[no-any-return]
