"""The client of the daemon: with a real zeusd on a simulated machine, and with odd servers."""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading

import httpx
import pytest
from loopback import KEY, Server, running_zeusd, token

from zeus.device.exception import ZeusdError
from zeus.utils.zeusd import (
    ZeusdAuthError,
    ZeusdCapabilityError,
    ZeusdClient,
    ZeusdConfig,
    ZeusdConnectionError,
    require_capabilities,
)


@pytest.fixture(scope="module")
def zeusd(tmp_path_factory):
    with running_zeusd(tmp_path_factory.mktemp("zeusd")) as (socket_path, host_port, _):
        yield socket_path, host_port


@pytest.fixture(scope="module")
def zeusd_with_key(tmp_path_factory):
    folder = tmp_path_factory.mktemp("key")
    (folder / "key").write_bytes(KEY)
    (folder / "key").chmod(0o600)
    with running_zeusd(folder, "--signing-key-path", str(folder / "key")) as (path, _, _):
        yield path


@pytest.fixture(params=["uds", "tcp"])
def config(request, zeusd):
    socket_path, host_port = zeusd
    if request.param == "uds":
        return ZeusdConfig.uds(socket_path)
    host, port = host_port.split(":")
    return ZeusdConfig.tcp(host, int(port))


def test_a_real_daemon_is_discovered(config):
    client = ZeusdClient(config)
    assert client.gpu_ids == list(range(8))
    assert client.gpus[0].pci_address == "0000:07:00.0"
    assert all(gpu.cumulative_energy_available for gpu in client.gpus)
    assert client.cpu_ids == [0, 1] and client.dram_available == [True, True]
    assert client.can_read_gpu and client.can_control_gpu and client.can_read_cpu
    assert not client.auth_required and client.auth_error is None
    assert client.endpoint == config.endpoint


def test_the_energy_and_power_of_a_real_daemon_are_read(config):
    client = ZeusdClient(config)
    energy = client.get_gpu_energy([0, 7])
    assert set(energy) == {0, 7} and all(isinstance(mj, int) for mj in energy.values())
    power = client.get_gpu_power()
    assert set(power.power_mw) == set(range(8))
    # No H100 draws less than 20 W or more than 800 W, whatever the simulated machine does.
    assert all(20_000 < mw < 800_000 for mw in power.power_mw.values())
    assert abs(power.timestamp_ms / 1000 - client.get_time()) < 60
    cpu = client.get_cpu_energy([1], dram=False)
    assert cpu[1].cpu_energy_uj > 0 and cpu[1].dram_energy_uj is None
    assert set(client.get_cpu_power([0]).power_mw) == {0}


def test_a_power_limit_that_is_set_is_read_back(config):
    client = ZeusdClient(config)
    lowest, highest = client.get_power_limit_constraints([3])[3]
    before = client.get_power_limit([3])[3]
    try:
        client.set_power_limit([3], lowest + 10_000)
        assert client.get_power_limit([3]) == {3: lowest + 10_000}
        with pytest.raises(ZeusdError, match="Failed to set_power_limit") as refused:
            client.set_power_limit([3], highest + 1_000)
        assert refused.value.status == 400
    finally:
        client.set_power_limit([3], before)


def test_clocks_and_persistence_are_set(config):
    client = ZeusdClient(config)
    client.set_persistence_mode([0, 1], True)
    assert client.get_persistence_mode([0, 1]) == {0: True, 1: True}
    client.set_gpu_locked_clocks([0], 300, 1200)
    client.reset_gpu_locked_clocks([0])
    client.set_mem_locked_clocks([0], 1593, 2619, block=False)
    client.reset_mem_locked_clocks([0])
    client.reset_locked_clocks([0, 1])


def test_a_gpu_that_is_not_there_is_an_error_that_names_the_call(config):
    with pytest.raises(ZeusdError, match="Failed to get_gpu_power") as error:
        ZeusdClient(config).get_gpu_power([9])
    assert error.value.status == 400


def test_an_empty_list_asks_for_nothing_and_is_said(config):
    client = ZeusdClient(config)
    for call in (
        lambda: client.get_gpu_power([]),
        lambda: client.get_gpu_energy([]),
        lambda: client.get_cpu_power([]),
        lambda: client.set_power_limit([], 200_000),
    ):
        with pytest.raises(ZeusdError, match=r"the list \wpu_ids is empty"):
            call()


def test_scopes_of_a_token_decide_what_is_possible(zeusd_with_key):
    good = token(["gpu-read"], exp=9999999999)
    client = ZeusdClient(ZeusdConfig.uds(zeusd_with_key, token=good))
    assert client.auth_required and client.auth_error is None
    assert client.granted_scopes == {"gpu-read"}
    assert (client._whoami_sub, client._whoami_exp) == ("tester", 9999999999)
    assert client.can_read_gpu and not client.can_control_gpu and not client.can_read_cpu
    assert client.get_gpu_power([0]).power_mw
    with pytest.raises(ZeusdError, match="set_power_limit") as refused:
        client.set_power_limit([0], 300_000)
    assert refused.value.status == 403
    with pytest.raises(ZeusdCapabilityError, match="lacks required scope gpu-control"):
        require_capabilities(client, read_gpu=True, control_gpu=True)


@pytest.mark.parametrize(
    ("offered", "said"),
    [
        (None, "no token was provided"),
        (token(["gpu-read"], exp=1000000000), "Token rejected"),
        (token(["gpu-read"], key=b"another"), "Token rejected"),
    ],
)
def test_a_bad_token_is_kept_and_said_not_raised(zeusd_with_key, offered, said, caplog):
    client = ZeusdClient(ZeusdConfig.uds(zeusd_with_key, token=offered))
    assert said in client.auth_error and said in caplog.text
    assert client.gpu_ids == list(range(8)) and not client.can_read_gpu
    with pytest.raises(ZeusdAuthError, match=said):
        require_capabilities(client)


def test_a_token_is_not_shown():
    assert "secret" not in repr(ZeusdConfig.tcp("node1", 4938, token="secret"))


def test_an_address_of_ipv6_is_spelt_as_urls_want_it():
    assert ZeusdConfig.tcp("::1", 4938).url("/time") == "http://[::1]:4938/time"
    assert ZeusdConfig.tcp("[::1]", 4938).endpoint == "[::1]:4938"


def test_a_config_without_an_address_is_an_error():
    with pytest.raises(ValueError, match="names no daemon"):
        _ = ZeusdConfig().endpoint


def test_the_version_of_the_wire_is_sent_and_a_daemon_may_be_silent_about_it():
    with Server() as server:
        client = ZeusdClient(server.config)
        assert client.gpu_ids == [0]
        assert server.requests[0][2]["Zeus-Protocol"] == "1"


def test_a_daemon_of_another_version_is_refused_by_a_message_with_both():
    with Server() as server:
        server.headers = {"Zeus-Protocol": "7"}
        with pytest.raises(ZeusdConnectionError, match=r"version 7 of the wire .* version 1"):
            ZeusdClient(server.config)


def test_a_daemon_that_is_replaced_by_another_version_is_noticed():
    with Server() as server:
        client = ZeusdClient(server.config)
        server.headers = {"Zeus-Protocol": "2"}
        with pytest.raises(ZeusdConnectionError, match="version 2 of the wire"):
            client.get_time()


def test_a_client_of_another_version_is_told_by_a_real_daemon(zeusd, monkeypatch):
    monkeypatch.setattr("zeus.utils._zeusd_wire._PROTOCOL", "9")
    with pytest.raises(ZeusdConnectionError, match=r"version 1 of the wire .* version 9"):
        ZeusdClient(ZeusdConfig.uds(zeusd[0]))


def test_what_is_no_daemon_is_said():
    with Server() as server:
        server.answers["/discover"] = (200, "<html>hello</html>")
        with pytest.raises(ZeusdConnectionError, match="is not Zeusd"):
            ZeusdClient(server.config)
        server.answers["/discover"] = (200, {"gpus": []})
        with pytest.raises(ZeusdConnectionError, match=r"does not tell 'cpus'.*Upgrade zeusd"):
            ZeusdClient(server.config)


# field failure 159
@pytest.mark.parametrize("kind", ["nothing", "a file", "a socket that nobody listens on"])
def test_a_socket_that_does_not_answer_says_why_and_the_way_out(tmp_path, kind):
    path = tmp_path / "zeusd.sock"
    if kind == "a file":
        path.write_text("")
    elif kind != "nothing":
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(path))
    way_out = {
        "nothing": "there is no such socket; start zeusd, or correct ZEUSD_SOCK_PATH",
        "a file": "that is no socket",
    }.get(kind, "nobody listens on it; start zeusd")
    with pytest.raises(ZeusdConnectionError, match=f"Cannot reach Zeusd at {path}.*{way_out}"):
        ZeusdClient(ZeusdConfig.uds(str(path)))


# field failure 123
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_socket_that_may_not_be_opened_says_its_mode_and_group(tmp_path):
    path = tmp_path / "zeusd.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)
        for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
            folder.chmod(0o755)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            try:
                ZeusdClient(ZeusdConfig.uds(str(path)))
            except BaseException as error:
                os.write(write, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        with os.fdopen(read) as said:
            text = said.read()
    assert "its mode is 0600, its owner 0, its group 0; join that group" in text


def test_a_proxy_of_the_environment_is_not_told_the_token(monkeypatch):
    with Server() as server, Server() as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.key}")
        monkeypatch.setenv("http_proxy", f"http://{proxy.key}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        host, port = server.key.split(":")
        ZeusdClient(ZeusdConfig.tcp(host, int(port), token="secret"))
        assert server.requests and not proxy.requests


def test_a_blocking_write_waits_for_longer_than_a_read(monkeypatch):
    seen = {}

    def make_client(config):
        def handle(request):
            seen[request.url.path] = request.extensions["timeout"]["read"]
            answer = {"gpus": [], "cpus": [], "enabled_api_groups": [], "auth_required": False}
            return httpx.Response(200, json={**answer, "timestamp_ms": 0})

        return httpx.Client(transport=httpx.MockTransport(handle))

    monkeypatch.setattr(ZeusdConfig, "make_client", make_client)
    client = ZeusdClient(ZeusdConfig.tcp("x", 1))
    client.get_time()
    client.set_power_limit([0], 1)
    client.set_persistence_mode([0], True, block=False)
    # An administrator's command gets 60 s by default.
    assert seen["/gpu/set_power_limit"] > 60
    assert seen["/time"] == seen["/gpu/set_persistence_mode"] == 5.0


def test_a_forked_child_asks_on_a_connection_of_its_own(zeusd):
    client = ZeusdClient(ZeusdConfig.uds(zeusd[0]))
    client.get_time()
    child = os.fork()
    if child == 0:
        try:
            ok = all(client.get_gpu_energy([1]).keys() == {1} for _ in range(20))
        finally:
            os._exit(0 if ok else 1)
    assert all(client.get_gpu_energy([0]).keys() == {0} for _ in range(20))
    assert os.waitpid(child, 0)[1] == 0


def test_threads_share_a_client(zeusd):
    client = ZeusdClient(ZeusdConfig.uds(zeusd[0]))
    answers: list[set[int]] = []

    def ask(gpu):
        answers.extend({gpu} ^ client.get_gpu_energy([gpu]).keys() for _ in range(10))

    threads = [threading.Thread(target=ask, args=(gpu,)) for gpu in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [set()] * 40


def test_a_client_that_was_closed_opens_its_connection_anew(zeusd):
    client = ZeusdClient(ZeusdConfig.uds(zeusd[0]))
    client.close()
    client.close()
    assert client.get_time() > 0


def test_without_httpx_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ImportError, match=r"zeus-cpp\[compat\]"):
        ZeusdClient(ZeusdConfig.tcp("localhost", 1))
