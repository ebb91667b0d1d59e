"""From a table of events to a log of decisions, told by one declarative spec.

Events (who, when, what, how much) come in: files of one row per event, MEDS, or the tables of an
OMOP database. A `Spec`, in Python or TOML, says what an episode is, when is decided, what is known,
done and gained. It is compiled to SQL that DuckDB runs, out of core and whatever the order of the
rows; a spec in which a state could see what comes after its decision is refused. A log goes out,
with a dictionary, a flow of counts and what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprl._core.lazy import attach

if TYPE_CHECKING:
    from dprl.logs.events._build import Built as Built
    from dprl.logs.events._build import build as build
    from dprl.logs.events._build import explain as explain
    from dprl.logs.events._build import from_events as from_events
    from dprl.logs.events.spec import Action as Action
    from dprl.logs.events.spec import Choice as Choice
    from dprl.logs.events.spec import Clock as Clock
    from dprl.logs.events.spec import End as End
    from dprl.logs.events.spec import Episodes as Episodes
    from dprl.logs.events.spec import Feature as Feature
    from dprl.logs.events.spec import Interval as Interval
    from dprl.logs.events.spec import Part as Part
    from dprl.logs.events.spec import Reward as Reward
    from dprl.logs.events.spec import Source as Source
    from dprl.logs.events.spec import Spec as Spec
    from dprl.logs.events.spec import SpecError as SpecError
    from dprl.logs.events.spec import read_spec as read_spec

__getattr__, __dir__, __all__ = attach(__name__)
