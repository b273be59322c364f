"""HTTP/1.1 as both daemons speak it: methods, paths, bodies, and what is no request at all."""

import http.client
import io

import pytest
from answers import done, json_of
from daemons import token

WRITE = "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=200000&block=true"


class Answers:
    """What comes back for bytes that were sent as they are."""

    def __init__(self, daemon, request: bytes):
        self._socket = daemon.connect()
        self._socket.sendall(request)
        self._file = self._socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def next(self, method: str = "GET") -> http.client.HTTPResponse:
        class Made:
            def makefile(_, mode):
                return io.BufferedReader(_Kept(self._file))

        answer = http.client.HTTPResponse(Made(), method=method)
        answer.begin()
        answer.body = answer.read()
        return answer

    @property
    def closed(self) -> bool:
        return self._file.read(1) == b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()
        self._socket.close()


class _Kept(io.RawIOBase):
    """Reads no more than it is asked for, so that the next answer stays where it is."""

    def __init__(self, file):
        self._file = file

    def readable(self):
        return True

    def readinto(self, buffer):
        data = self._file.read(1)
        buffer[: len(data)] = data
        return len(data)


def ask(daemon, *lines: str, body: bytes = b"", method: str = "GET"):
    with Answers(daemon, "\r\n".join([*lines, "", ""]).encode() + body) as answers:
        return answers.next(method)


# --- methods and paths ---


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW"])
@pytest.mark.parametrize("path", ["/gpu/get_power", "/cpu/get_power", "/gpu/stream_power", "/time"])
def test_another_method_on_a_read_is_not_found(daemon, method, path):
    answer = daemon.send(method, path)
    assert answer.status_code == 404 and answer.content == b""


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
def test_another_method_on_a_write_is_not_found_and_changes_nothing(daemon, method):
    done(daemon.post(WRITE.replace("200000", "222000")))
    answer = daemon.send(method, WRITE)
    assert answer.status_code == 404 and answer.content == b""
    assert daemon.gpus[0].limit_mw == 222_000


@pytest.mark.parametrize(
    "path",
    ["/", "/nonsense", "/gpu", "/gpu/", "/gpu/nonsense", "/gpu/get_power/", "/GPU/get_power",
     "/gpu/get_power%20", "/discover/", "/gpu/set_nonsense", "/auth", "/gpu/0/get_power"],
)  # fmt: skip
def test_an_unknown_path_is_not_found(daemon, path):
    answer = ask(daemon, f"GET {path} HTTP/1.1", "Host: localhost")
    assert answer.status == 404 and answer.body == b""


@pytest.mark.parametrize(
    "path", ["/gpu//get_power", "//gpu/get_power", "/gpu/../discover", "/gpu%2Fget_power"]
)
def test_a_path_that_is_written_oddly(daemon, path):
    answer = ask(daemon, f"GET {path} HTTP/1.1", "Host: localhost")
    assert answer.status == daemon.expected(path)


@pytest.mark.parametrize("path", ["/gpu/get%5Fpower", "/gpu/get%5fpower", "/%67pu/get_power"])
def test_paths_are_decoded_before_they_are_looked_up(daemon, path):
    answer = ask(daemon, f"GET {path} HTTP/1.1", "Host: localhost")
    assert answer.status == 200 and b'"power_mw"' in answer.body


@pytest.mark.parametrize("query", ["?", "?&", "?gpu_ids=0&", "?&&gpu_ids=0"])
def test_empty_parts_of_a_query_are_nothing(daemon, query):
    assert ask(daemon, f"GET /gpu/get_power{query} HTTP/1.1", "Host: localhost").status == 200


def test_a_target_with_a_fragment(daemon):
    answer = ask(daemon, "GET /gpu/get_power?gpu_ids=0#x HTTP/1.1", "Host: localhost")
    assert answer.status == daemon.expected("?gpu_ids=0#x")


@pytest.mark.parametrize(
    "query", ["?gpu_ids", "?gpu_ids=%zz", "?gpu_ids=%ff", "?gpu_ids=%", "?gpu_ids=%00", "?=0"]
)
def test_broken_queries_are_refused(daemon, query):
    assert ask(daemon, f"GET /gpu/get_power{query} HTTP/1.1", "Host: localhost").status == 400


# --- heads ---


def test_answers_carry_a_date_and_a_length(daemon):
    for target in ("/time", "/nonsense", "/gpu/get_power?x=1"):
        answer = ask(daemon, f"GET {target} HTTP/1.1", "Host: localhost")
        assert answer.headers["date"].endswith(" GMT")
        assert int(answer.headers["content-length"]) == len(answer.body)


def test_a_request_for_another_host(daemon):
    answer = daemon.send("GET", "/time", headers={"Host": "evil.example"})
    assert answer.status_code == daemon.expected("a request for another host")


def test_a_connection_is_kept_and_closed_as_asked(daemon):
    with Answers(daemon, b"GET /time HTTP/1.1\r\nHost: localhost\r\n\r\n") as answers:
        assert answers.next().status == 200
        answers.send(
            b"GET /time HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        assert answers.next().status == 200
        assert answers.closed


def test_http_1_0_is_answered_and_closed(daemon):
    with Answers(daemon, b"GET /time HTTP/1.0\r\nHost: localhost\r\n\r\n") as answers:
        answer = answers.next()
        assert answer.status == 200 and b"timestamp_ms" in answer.body
        assert answers.closed


def test_requests_sent_at_once_are_answered_in_order(daemon):
    one = "GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    targets = [f"/gpu/get_power?gpu_ids={i % 4}" for i in range(16)]
    with Answers(daemon, "".join(map(one.format, targets)).encode()) as answers:
        for i in range(16):
            assert f'"power_mw":{{"{i % 4}":150000}}'.encode() in answers.next().body


def test_a_pipelined_write_and_read_are_done_in_order(daemon):
    write = f"POST {WRITE} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    read = "GET /gpu/get_power_limit?gpu_ids=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    done(daemon.post(WRITE.replace("200000", "250000")))
    with Answers(daemon, (write + read).encode()) as answers:
        assert answers.next().status == 200
        assert answers.next().body == b'{"0":{"power_limit_mw":200000}}'


@pytest.mark.parametrize("case", ["host", "HOST", "hOsT"])
def test_names_of_headers_have_no_case(guarded, case):
    name = {"host": "authorization", "HOST": "AUTHORIZATION", "hOsT": "aUTHORIZATION"}[case]
    answer = ask(
        guarded, "GET /gpu/get_power HTTP/1.1", f"{case}: localhost", f"{name}: Bearer {token()}"
    )
    assert answer.status == 200


def test_a_long_query_is_read(daemon):
    ids = ",".join(str(i % 4) for i in range(10_000))
    told = ask(daemon, f"GET /gpu/get_power?gpu_ids={ids} HTTP/1.1", "Host: localhost")
    assert told.status == daemon.expected("a query of 20 kB")


def test_an_endless_head_is_refused(daemon):
    wanted = {400, 413, 414, 431}
    try:
        with Answers(daemon, b"GET /time HTTP/1.1\r\nX: " + b"x" * 200_000 + b"\r\n\r\n") as answers:
            assert answers.next().status in wanted
    except (ConnectionError, http.client.BadStatusLine):
        pass  # Closed while we still wrote.
    json_of(daemon.get("/time"))


# --- bodies ---


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ([], b""),
        (["Content-Length: 0"], b""),
        (["Content-Length: 2", "Content-Type: application/json"], b"{}"),
        (["Content-Length: 25"], b"power_limit_mw=1&block=no"),
        (["Transfer-Encoding: chunked"], b"2\r\n{}\r\n0\r\n\r\n"),
    ],
)
def test_bodies_are_ignored_and_the_next_request_is_found(daemon, head, body):
    done(daemon.post(WRITE.replace("200000", "250000")))
    first = "\r\n".join([f"POST {WRITE} HTTP/1.1", "Host: localhost", *head, "", ""]).encode()
    with Answers(daemon, first + body) as answers:
        answer = answers.next("POST")
        assert answer.status == 200 and answer.body == b""
        answers.send(b"GET /time HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answers.next().status == 200
    assert daemon.gpus[0].limit_mw == 200_000


def test_a_client_that_expects_to_go_on_gets_its_answer(daemon):
    head = [f"POST {WRITE} HTTP/1.1", "Host: localhost", "Content-Length: 2", "Expect: 100-continue"]
    with Answers(daemon, "\r\n".join([*head, "", ""]).encode()) as answers:
        answers.send(b"{}")
        assert answers.next("POST").status == 200  # http.client passes over 100 Continue.


def test_a_body_on_a_read_is_ignored(daemon):
    answer = ask(
        daemon, "GET /time HTTP/1.1", "Host: localhost", "Content-Length: 3", body=b"abc"
    )
    assert answer.status == 200


# --- what is no request ---


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /time\r\n\r\n",
        b"GET /time HTTP/9.9\r\n\r\n",
        b"GET /time HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"GET /time HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"GET /time HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /time HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /time HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n",
        b"GET /time HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_harms_nobody(daemon, data):
    try:
        with Answers(daemon, data) as answers:
            answer = answers.next()
            assert answer.status in (400, 404, 505)
    except (ConnectionError, http.client.BadStatusLine):
        pass  # Closed without a word.
    json_of(daemon.get("/time"))


def test_a_request_in_pieces_is_put_together(daemon):
    with Answers(daemon, b"GET /ti") as answers:
        for piece in (b"me HTTP/1.1\r", b"\nHost: local", b"host\r\n", b"\r", b"\n"):
            answers.send(piece)
        assert answers.next().status == 200
