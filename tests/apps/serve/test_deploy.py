"""The files in deploy/: what they name exists, and nginx, Prometheus and systemd accept them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from waiting import until

import dprl
from conftest import to_log

pytest.importorskip("starlette", reason="starlette is not installed (dprl[serve])")
pytest.importorskip("uvicorn", reason="uvicorn is not installed (dprl[serve])")

from test_servers import running, until_ready

from dprl.apps.cli.console import app
from dprl.apps.serve.metrics import Metrics
from dprl.policies.base import REQUIRED_KEYS as REQUIRED

DEPLOY = Path(__file__).parents[3] / "deploy"
WHERE = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def tool(name):
    """The path of a program; the test is skipped where there is none."""
    path = shutil.which(name, path=WHERE)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def arguments():
    """The arguments of `dprl serve` in the unit and in the Dockerfile."""
    unit = (DEPLOY / "dprl-serve.service").read_text()
    yield shlex.split(re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1])[1:]
    docker = (DEPLOY / "Dockerfile").read_text()
    start, rest = (
        json.loads(re.search(rf"^{name} (\[.*\])$", docker, re.MULTILINE)[1])
        for name in ("ENTRYPOINT", "CMD")
    )
    yield [*start, *rest][1:]


def test_the_commands_are_ones_that_there_are():
    for tokens in arguments():
        command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
        assert command.__name__ == "serve"
        assert {"log", "audit"} <= set(bound.arguments)


def test_only_signed_policies_are_served():
    (unit, docker) = arguments()
    _, bound, _ = app.parse_args(unit, exit_on_error=False, print_error=False)
    name = bound.arguments["require_signed"].removeprefix("${").removesuffix("}")
    assert f"Environment={name}=/" in (DEPLOY / "dprl-serve.service").read_text()
    text = (DEPLOY / "Dockerfile").read_text()
    assert f"{REQUIRED}=/data/ours.pub" in text
    assert "[serve,sign]" in text  # checking a signature needs a package
    assert "--require-signed" not in docker


@pytest.mark.parametrize("file", ["prometheus-alerts.yml", "grafana-dashboard.json"])
def test_alerts_and_dashboard_ask_for_metrics_that_there_are(file):
    metrics = Metrics(["/act"], "d")
    metrics.room = lambda: 1.0
    names = {family.name for family in metrics.families()}
    text = (DEPLOY / file).read_text()
    assert file.endswith("yml") or len(json.loads(text)["panels"]) > 5
    asked = set(re.findall(r"\bdprl_[a-z_]+", text))
    assert asked
    assert {name.removesuffix("_total").removesuffix("_bucket") for name in asked} <= names


RULES_TEST = """
rule_files: [{rules}]
evaluation_interval: 1h
tests:
  - interval: 1h
    input_series:
      - {{series: 'up{{job="dprl"}}', values: '1x30'}}
      - {{series: 'dprl_ready', values: '1x30'}}
      - {{series: 'dprl_policy_reviewed', values: '1x30'}}
      - {{series: 'dprl_audit_room_bytes', values: '5e9x30'}}
      - {{series: 'dprl_not_stored_total', values: '0x30'}}
      - {{series: 'dprl_tokens_refused_total', values: '0x30'}}
      - {{series: 'dprl_answers_total{{kind="change"}}', values: '0+90x30'}}
      - {{series: 'dprl_answers_total{{kind="out_of_range"}}', values: '0+10x30'}}
      - {{series: 'dprl_feature_training_share{{feature="x",part="1",policy="p"}}', values: '0.5x30'}}
      - {{series: 'dprl_feature_training_share{{feature="x",part="2",policy="p"}}', values: '0.5x30'}}
      - {{series: 'dprl_feature_states_total{{feature="x",part="1",policy="p"}}', values: '0+100x30'}}
      - {{series: 'dprl_feature_training_share{{feature="y",part="1",policy="p"}}', values: '0.5x30'}}
      - {{series: 'dprl_feature_training_share{{feature="y",part="2",policy="p"}}', values: '0.5x30'}}
      - {{series: 'dprl_feature_states_total{{feature="y",part="1",policy="p"}}', values: '0+50x30'}}
      - {{series: 'dprl_feature_states_total{{feature="y",part="2",policy="p"}}', values: '0+50x30'}}
    promql_expr_test:
      - expr: dprl:feature_drift
        eval_time: 30h
        exp_samples:
          - {{labels: 'dprl:feature_drift{{feature="x",policy="p"}}', value: 0.5}}
          - {{labels: 'dprl:feature_drift{{feature="y",policy="p"}}', value: 0}}
    alert_rule_test:
      - {{eval_time: 30h, alertname: DprlDown, exp_alerts: []}}
      - {{eval_time: 30h, alertname: DprlNotWatched, exp_alerts: []}}
      - {{eval_time: 30h, alertname: DprlNotReviewed, exp_alerts: []}}
      - {{eval_time: 30h, alertname: DprlAuditNearlyFull, exp_alerts: []}}
      - {{eval_time: 30h, alertname: DprlNotReady, exp_alerts: []}}
      - {{eval_time: 30h, alertname: DprlAnswersNotStored, exp_alerts: []}}
      - {{eval_time: 30h, alertname: DprlTokensRefused, exp_alerts: []}}
      - {{eval_time: 30h, alertname: DprlManyDeferred, exp_alerts: []}}
      - eval_time: 30h
        alertname: DprlManyOutOfRange
        exp_alerts:
          - exp_labels: {{severity: ticket}}
            exp_annotations: {{summary: "More than 5 % of the states asked about lie outside the training log."}}
      - eval_time: 30h
        alertname: DprlFeatureDrift
        exp_alerts:
          - exp_labels: {{severity: ticket, feature: x, policy: p}}
            exp_annotations: {{summary: "Values of x are not spread as in training: 0.5."}}
"""

BY_MINUTE = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  # A service that is down is told apart from one that nobody watches, and one that is not ready.
  - interval: 1m
    input_series:
      - {{series: 'up{{job="dprl"}}', values: '0x60'}}
    alert_rule_test:
      - eval_time: 30m
        alertname: DprlDown
        exp_alerts:
          - exp_labels: {{severity: page, job: dprl}}
            exp_annotations: {{summary: "The policy service does not reply to Prometheus."}}
      - {{eval_time: 30m, alertname: DprlNotWatched, exp_alerts: []}}
      - {{eval_time: 30m, alertname: DprlNotReady, exp_alerts: []}}
  - interval: 1m
    input_series:
      - {{series: 'up{{job="other"}}', values: '1x60'}}
    alert_rule_test:
      - {{eval_time: 30m, alertname: DprlDown, exp_alerts: []}}
      - eval_time: 30m
        alertname: DprlNotWatched
        exp_alerts:
          - exp_labels: {{severity: page, job: dprl}}
            exp_annotations: {{summary: "Prometheus has no target of the job dprl: nobody watches the policy service."}}
  # Errors, slow answers, restarts, a policy that nobody reviewed, and a disk that fills up.
  - interval: 1m
    input_series:
      - {{series: 'up{{job="dprl"}}', values: '1x120'}}
      - {{series: 'dprl_ready', values: '0x120'}}
      - {{series: 'dprl_policy_reviewed', values: '0x120'}}
      - {{series: 'dprl_tokens_refused_total', values: '0x50 2x70'}}
      - {{series: 'dprl_audit_room_bytes', values: '5e8x120'}}
      - {{series: 'dprl_requests_total{{path="/act",code="200"}}', values: '0+95x120'}}
      - {{series: 'dprl_requests_total{{path="/act",code="500"}}', values: '0+5x120'}}
      - {{series: 'dprl_requests_total{{path="/readyz",code="503"}}', values: '0+1000x120'}}
      - {{series: 'dprl_request_seconds_bucket{{path="/act",le="0.25"}}', values: '0+90x120'}}
      - {{series: 'dprl_request_seconds_bucket{{path="/act",le="1"}}', values: '0+100x120'}}
      - {{series: 'dprl_request_seconds_bucket{{path="/act",le="+Inf"}}', values: '0+100x120'}}
      - {{series: 'dprl_start_time_seconds', values: '1x70 2x10 3x10 4x30'}}
      - {{series: 'dprl_worker_restarts_total', values: '0x120'}}
    alert_rule_test:
      - eval_time: 60m
        alertname: DprlTokensRefused
        exp_alerts:
          - exp_labels: {{severity: page}}
            exp_annotations: {{summary: "A new file of tokens was not taken over; tokens that it withdraws still open the service."}}
      - {{eval_time: 100m, alertname: DprlTokensRefused, exp_alerts: []}}
      - eval_time: 60m
        alertname: DprlNotReady
        exp_alerts:
          - exp_labels: {{severity: page}}
            exp_annotations: {{summary: "The policy service replies, but is not ready: it is starting, or the audit has no room."}}
      - eval_time: 60m
        alertname: DprlManyErrors
        exp_alerts:
          - exp_labels: {{severity: page}}
            exp_annotations: {{summary: "More than 1 % of the requests end with an error of the service."}}
      - eval_time: 60m
        alertname: DprlSlow
        exp_alerts:
          - exp_labels: {{severity: ticket}}
            exp_annotations: {{summary: "One answer in a hundred takes more than half a second."}}
      - {{eval_time: 60m, alertname: DprlRestarts, exp_alerts: []}}
      - eval_time: 100m
        alertname: DprlRestarts
        exp_alerts:
          - exp_labels: {{severity: ticket}}
            exp_annotations: {{summary: "The policy service, or one of its processes, starts again and again."}}
      - eval_time: 60m
        alertname: DprlNotReviewed
        exp_alerts:
          - exp_labels: {{severity: ticket}}
            exp_annotations: {{summary: "A policy that nobody reviewed is being served."}}
      - eval_time: 60m
        alertname: DprlAuditNearlyFull
        exp_alerts:
          - exp_labels: {{severity: ticket}}
            exp_annotations: {{summary: "The audit has room for less than 1 GB; without room no answer is given."}}
  # Few errors, answers in time, and one restart of a process now and then are no reason to call anybody.
  - interval: 1m
    input_series:
      - {{series: 'dprl_requests_total{{path="/act",code="200"}}', values: '0+1000x120'}}
      - {{series: 'dprl_requests_total{{path="/act",code="500"}}', values: '0+1x120'}}
      - {{series: 'dprl_request_seconds_bucket{{path="/act",le="0.25"}}', values: '0+1000x120'}}
      - {{series: 'dprl_request_seconds_bucket{{path="/act",le="+Inf"}}', values: '0+1000x120'}}
      - {{series: 'dprl_worker_restarts_total', values: '0x60 1x60'}}
    alert_rule_test:
      - {{eval_time: 100m, alertname: DprlManyErrors, exp_alerts: []}}
      - {{eval_time: 100m, alertname: DprlSlow, exp_alerts: []}}
      - {{eval_time: 100m, alertname: DprlRestarts, exp_alerts: []}}
"""


@pytest.mark.slow
def test_prometheus_accepts_the_alerts_and_raises_them(tmp_path):
    promtool = tool("promtool")
    rules = DEPLOY / "prometheus-alerts.yml"
    subprocess.run([promtool, "check", "rules", str(rules)], check=True, capture_output=True)
    (tmp_path / "hours.yml").write_text(RULES_TEST.format(rules=rules))
    (tmp_path / "minutes.yml").write_text(BY_MINUTE.format(rules=rules))
    told = subprocess.run(
        [promtool, "test", "rules", "hours.yml", "minutes.yml"], capture_output=True, text=True,
        check=False, cwd=tmp_path,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.slow
def test_prometheus_accepts_the_metrics():
    promtool = tool("promtool")
    metrics = Metrics(["/act"], "d")
    metrics.training = {"x": {"1": 0.5, "2": 0.5}}
    metrics.asked("/act", 200, 0.1)
    metrics.add("dprl_feature_states", 'a "quoted" \\ name', "1", "d")
    told = subprocess.run(
        [promtool, "check", "metrics"], input=metrics.text()[0], capture_output=True, check=False
    )
    assert told.returncode == 0, told.stderr.decode()


@pytest.mark.slow
def test_systemd_accepts_the_unit(tmp_path):
    verify = tool("systemd-analyze")
    unit = (DEPLOY / "dprl-serve.service").read_text()
    path = tmp_path / "dprl-serve.service"
    path.write_text(unit.replace("/opt/dprl/bin/dprl", sys.executable))
    told = subprocess.run(
        [verify, "verify", "--man=no", str(path)], capture_output=True, text=True, check=False
    )
    mine = [line for line in told.stderr.splitlines() if "dprl-serve" in line]
    assert not mine, told.stderr


@pytest.mark.slow
def test_the_unit_is_closed_to_what_it_does_not_need():
    """Exposure as systemd counts it, 0 to 10; 6.9 without the lines about calls and namespaces."""
    told = subprocess.run(
        [tool("systemd-analyze"), "security", "--offline=true", str(DEPLOY / "dprl-serve.service")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    level = re.search(r"exposure level for .*: ([0-9.]+)", told.stdout)
    if level is None:
        pytest.skip("this systemd does not judge files")
    assert float(level[1]) < 3


@pytest.mark.slow
def test_hadolint_accepts_the_dockerfile():
    hadolint = tool("hadolint")
    told = subprocess.run(
        [hadolint, str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr


@contextlib.contextmanager
def proxied(folder, port):
    """nginx with the configuration of deploy/, its paths and ports moved; its port for TLS."""
    nginx, openssl = tool("nginx"), tool("openssl")
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=dprl.example.org", "-addext", "subjectAltName=DNS:dprl.example.org", "-keyout",
         str(folder / "tls.key"), "-out", str(folder / "tls.crt")],
        check=True, capture_output=True,
    )  # fmt: skip
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        own = free.getsockname()[1]
    text = (DEPLOY / "nginx.conf").read_text()
    for before, after in (
        ("127.0.0.1:8000;", f"127.0.0.1:{port};"), ("listen 443 ssl", f"listen 127.0.0.1:{own} ssl"),
        ("/etc/dprl/", f"{folder}/"), ("/run/nginx.pid", f"{folder}/nginx.pid"),
        ("/var/log/nginx/error.log", f"{folder}/error.log"),
        ("/var/log/nginx/dprl-access.log", f"{folder}/access.log"),
    ):  # fmt: skip
        assert before in text
        text = text.replace(before, after)
    for part in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
        text = text.replace("    access_log ", f"    {part}_temp_path {folder}/{part};\n    access_log ")  # fmt: skip
    (folder / "nginx.conf").write_text(f"daemon off;\n{text}")
    process = subprocess.Popen(
        [nginx, "-p", str(folder), "-e", str(folder / "error.log"), "-c",
         str(folder / "nginx.conf")], stderr=subprocess.PIPE,
    )  # fmt: skip
    try:

        def there():
            assert process.poll() is None, process.stderr.read().decode()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", own)):
                return True

        until(there)
        yield own
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.slow
def test_tls_in_front(tmp_path):
    log = to_log([[("s", "b", 1.0)]] * 3 + [[("s", "a", 0.0)]] * 4)
    dprl.DPRLDiscrete(n_min=2, gamma=1.0).fit(log).save(tmp_path / "p.dprl")
    name = "dprl.example.org"
    with running("serve", "p.dprl", "--allow-host", name, "--log", "log", cwd=tmp_path) as (
        _,
        facts,
    ):
        until_ready(facts["url"])
        with proxied(tmp_path, facts["url"].rsplit(":", 1)[1]) as port:
            trust = ssl.create_default_context(cafile=str(tmp_path / "tls.crt"))
            trust.check_hostname = False  # the name is checked below, by the Host header

            def ask(path, data=None, **headers):
                request = urllib.request.Request(
                    f"https://127.0.0.1:{port}{path}", data,
                    {"Host": name, "Authorization": f"Bearer {facts['token']}", **headers},
                )  # fmt: skip
                try:
                    with urllib.request.urlopen(request, context=trust) as answer:
                        return answer.status, answer.read(), dict(answer.headers)
                except urllib.error.HTTPError as error:
                    with error:
                        return error.code, error.read(), dict(error.headers)

            code, body, headers = ask(
                "/act", b'{"states": ["s"]}', **{"Content-Type": "application/json"}
            )
            assert code == 200
            assert json.loads(body)["answers"][0]["action"] == "b"
            ident = {k.lower(): v for k, v in headers.items()}["x-request-id"]
            assert ask("/readyz", Authorization="")[0] == 200
            assert ask("/policy", Authorization="")[0] == 401
            assert ask("/metrics")[0] == 403
            assert ask("/policy", Host="evil.example")[0] == 421
            assert ask("/act", b"x" * 1_100_000)[0] == 413
            assert ask("/policy", Origin="https://dprl.example.org")[0] == 200
            assert ask("/policy", Origin="https://evil.example")[0] == 403
            # The id that a caller gave goes all the way, unless dprl would not take it.
            given = {"X-Request-ID": "ward-7:42"}
            own = {k.lower(): v for k, v in ask("/policy", **given)[2].items()}
            assert own["x-request-id"] == "ward-7:42"
            odd = {"X-Request-ID": "a b"}
            made = {k.lower(): v for k, v in ask("/policy", **odd)[2].items()}
            assert len(made["x-request-id"]) == 32
            until(lambda: "ward-7:42" in (tmp_path / "access.log").read_text())
            rows = [json.loads(row) for row in (tmp_path / "access.log").read_text().splitlines()]
            asked = {row["request"]: row for row in rows}
            assert (asked[ident]["code"], asked[ident]["path"]) == (200, "/act")
            assert asked["ward-7:42"]["address"] == "127.0.0.1"
            assert facts["token"] not in (tmp_path / "access.log").read_text()
            until(lambda: ident in (tmp_path / "log").read_text())
