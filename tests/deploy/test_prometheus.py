"""Configuration, rules and dashboard, judged by Prometheus' own tool and by the list of our metrics."""

import json
import re
import shutil

import pytest
import yaml

from conftest import DEPLOY, ROOT, run, tool

FOLDER = DEPLOY / "prometheus"
# A word of PromQL that is neither in quotes, nor a label, nor a function.
STRING = re.compile(r'"[^"]*"')
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


def rules() -> list[dict]:
    groups = [g for f in ("rules.yml", "alerts.yml") for g in yaml.safe_load((FOLDER / f).read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict:
    return json.loads((FOLDER / "grafana-dashboard.json").read_text())


def dashboard_queries() -> list[str]:
    return [t["expr"] for p in dashboard()["panels"] for t in p.get("targets", [])]


def ours(expression: str) -> set[str]:
    """The metrics that an expression names: ours, and those that rules record."""
    words = NAME.findall(STRING.sub("", expression))
    return {w for w in words if w.startswith("zeus") or ":" in w}


@pytest.fixture
def folder(tmp_path):
    """Rules and their test in one folder, as promtool wants them."""
    for file in [*FOLDER.glob("*.yml"), ROOT / "tests" / "deploy" / "rules_test.yml"]:
        shutil.copy(file, tmp_path)
    return tmp_path


def test_configuration_and_rules_are_valid():
    done = run(tool("promtool"), "check", "config", "--lint-fatal", FOLDER / "prometheus.yml")
    assert done.returncode == 0, done.stdout


# field failures 53, 92: a restarted daemon's counter begins anew, and one that is gone is missed.
def test_rules_give_what_the_closed_forms_give(folder):
    done = run(tool("promtool"), "test", "rules", "rules_test.yml", cwd=folder)
    assert done.returncode == 0, done.stdout


def test_a_wrong_expectation_is_found(folder):
    file = folder / "rules_test.yml"
    file.write_text(file.read_text().replace("value: 14300", "value: 14301"))
    assert run(tool("promtool"), "test", "rules", file.name, cwd=folder).returncode == 1


def test_rules_name_metrics_that_there_are(metric_names):
    recorded = {r["record"] for r in rules() if "record" in r}
    named = set().union(*(ours(r["expr"]) for r in rules()))
    assert named and named <= metric_names | recorded


def test_every_rule_has_a_closed_form():
    text = (ROOT / "tests" / "deploy" / "rules_test.yml").read_text()
    untested = {r.get("record") or r["alert"] for r in rules() if (r.get("record") or r["alert"]) not in text}
    # Of the same form as others that are tested.
    assert untested == {"device:zeus_downtime_seconds:1h", "ZeusdNotReady", "ZeusSamplesMissed"}


def test_the_dashboard_names_metrics_that_there_are(metric_names):
    queries = dashboard_queries()
    variables = [v["query"]["query"] for v in dashboard()["templating"]["list"] if v["type"] == "query"]
    named = set().union(*map(ours, queries + variables))
    assert len(queries) > 10
    assert named and named <= metric_names


def test_queries_of_the_dashboard_are_valid(tmp_path):
    fill = {"$__range_s": "3600", "$__range": "1h", "$instance": ".*"}
    queries = dashboard_queries()
    for variable, value in fill.items():
        queries = [q.replace(variable, value) for q in queries]
    assert not any("$" in q for q in queries)
    group = {"name": "g", "rules": [{"record": f"q{i}", "expr": q} for i, q in enumerate(queries)]}
    (tmp_path / "q.yml").write_text(yaml.safe_dump({"groups": [group]}))
    done = run(tool("promtool"), "check", "rules", tmp_path / "q.yml")
    assert done.returncode == 0, done.stdout


def test_panels_lie_beside_each_other_and_have_what_grafana_asks_for():
    seen, ids = set(), []
    board = dashboard()
    assert board["schemaVersion"] >= 36 and board["title"] and board["uid"]
    for panel in board["panels"]:
        ids.append(panel["id"])
        assert panel["title"] and panel["type"] in {"stat", "timeseries", "state-timeline", "table"}
        assert panel["datasource"]["uid"] == "${datasource}"
        g = panel["gridPos"]
        assert 0 <= g["x"] and g["x"] + g["w"] <= 24
        cells = {(x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])}
        assert not cells & seen, panel["title"]
        seen |= cells
        assert [t["refId"] for t in panel["targets"]] == [*"ABCDEF"][: len(panel["targets"])]
    assert len(ids) == len(set(ids))
