"""For type checkers: `dprl.events` is `dprl.logs.events`, under a shorter name."""

from dprl.logs.events import Action as Action
from dprl.logs.events import Built as Built
from dprl.logs.events import Choice as Choice
from dprl.logs.events import Clock as Clock
from dprl.logs.events import End as End
from dprl.logs.events import Episodes as Episodes
from dprl.logs.events import Feature as Feature
from dprl.logs.events import Interval as Interval
from dprl.logs.events import Part as Part
from dprl.logs.events import Reward as Reward
from dprl.logs.events import Source as Source
from dprl.logs.events import Spec as Spec
from dprl.logs.events import SpecError as SpecError
from dprl.logs.events import build as build
from dprl.logs.events import explain as explain
from dprl.logs.events import from_events as from_events
from dprl.logs.events import read_spec as read_spec
