"""The DaemonSet: what it names is there, in itself and in the daemon."""

import re

import pytest
import yaml

from conftest import DEPLOY

FILE = DEPLOY / "kubernetes" / "zeusd.yaml"


@pytest.fixture(scope="module")
def manifest() -> dict:
    (one,) = yaml.safe_load_all(FILE.read_text())
    return one


@pytest.fixture(scope="module")
def pod(manifest) -> dict:
    return manifest["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def container(pod) -> dict:
    (one,) = pod["containers"]
    return one


@pytest.fixture(scope="module")
def arguments(container) -> dict[str, str]:
    return {name: value for name, _, value in (a.partition("=") for a in container["args"])}


def test_its_labels_select_its_pods(manifest):
    selector = manifest["spec"]["selector"]["matchLabels"]
    assert selector.items() <= manifest["spec"]["template"]["metadata"]["labels"].items()


def test_every_mount_has_its_volume(pod, container):
    volumes = {v["name"]: v["hostPath"]["path"] for v in pod["volumes"]}
    mounts = {m["name"]: m for m in container["volumeMounts"]}
    assert volumes.keys() == mounts.keys()
    # The places where the daemon looks for a node's powercap inside a container.
    for name, path in volumes.items():
        mount = mounts[name]
        if path.startswith("/sys/"):
            assert mount["mountPath"] == path.replace("/sys/", "/zeus_sys/")
            assert mount["readOnly"]
        else:
            assert mount["mountPath"] == path


def test_its_arguments_are_those_of_the_daemon(arguments, serve_flags):
    assert arguments.keys() <= serve_flags


def test_socket_and_port_are_those_that_others_are_told(manifest, container, arguments):
    mounts = [m["mountPath"] for m in container["volumeMounts"]]
    assert arguments["--socket-path"].rpartition("/")[0] in mounts
    assert arguments["--journal"] in mounts
    (port,) = container["ports"]
    assert arguments["--tcp-bind-address"].endswith(f":{port['containerPort']}")
    notes = manifest["spec"]["template"]["metadata"]["annotations"]
    assert notes["prometheus.io/port"] == str(port["containerPort"])
    assert notes["prometheus.io/path"] == "/metrics"
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]


def test_it_may_no_more_than_it_must(container, arguments):
    context = container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert context["readOnlyRootFilesystem"] and "privileged" not in context
    assert "gpu-control" in arguments["--enable"], "else it needs no SYS_ADMIN"
    assert "--tcp-read-only" in arguments, "whoever reaches the port could control the GPUs"


def test_the_monitor_in_the_comment_is_yaml_and_selects_the_pods(manifest):
    comment = re.search(r"^#   apiVersion.*?(?=^[^#])", FILE.read_text(), re.M | re.S)[0]
    monitor = yaml.safe_load(re.sub(r"^#   ", "", comment, flags=re.M))
    assert monitor["kind"] == "PodMonitor"
    selected = monitor["spec"]["selector"]["matchLabels"]
    assert selected == manifest["spec"]["selector"]["matchLabels"]
