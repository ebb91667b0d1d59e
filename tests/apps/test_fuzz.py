"""The service fuzzed from its own description: no 500, and nothing it does not describe."""

from __future__ import annotations

import pytest
from test_servers import running, until_ready

import dprl

schemathesis = pytest.importorskip(
    "schemathesis", reason="schemathesis is not installed (dprl[dev])"
)

from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["labels", "confident", "features"])
def served(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    if request.param == "labels":
        log = dprl.envs.care_pathway().sample(400, seed=1)
        policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
    elif request.param == "confident":
        policy = dprl.Confident(gamma=1.0).fit(dprl.envs.care_pathway().sample(500, seed=0))
    else:
        learner = dprl.DPRLContinuous(
            n_min=5, radius=0.1, gamma=0.97, metric=dprl.Metric(scale="none"), cut="terminal"
        )
        policy = learner.fit(dprl.envs.PointMass().sample(80, seed=1))
    policy.save(folder / "p.dprl")
    with running("serve", "p.dprl", cwd=folder) as (process, facts):
        until_ready(facts["url"])
        yield facts
        assert process.poll() is None


@pytest.mark.parametrize(
    ("operation", "mode"),
    [(f"POST /{path}", mode) for path in ("act", "explain") for mode in ("positive", "negative")]
    + [
        (f"GET /{path}", "positive")
        for path in ("policy", "livez", "readyz", "healthz", "metrics", "openapi.json")
    ],
)
def test_nothing_breaks_it(served, operation, mode):
    headers = {"Authorization": f"Bearer {served['token']}"}
    schema = schemathesis.openapi.from_url(f"{served['url']}/openapi.json", headers=headers)
    method, path = operation.split()
    wanted = getattr(schemathesis.GenerationMode, mode.upper())
    strategy = schema[path][method].as_strategy(generation_mode=wanted)

    asked = []

    @given(case=strategy)
    @settings(
        max_examples=120 if method == "POST" else 20, deadline=None, derandomize=True,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def ask(case):
        asked.append(case)
        answer = case.call_and_validate(headers=headers)
        assert answer.status_code < 500
        if mode == "positive":
            assert answer.status_code == 200

    ask()
    assert len(asked) > (90 if method == "POST" else 0)
