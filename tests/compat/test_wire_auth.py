"""Groups, tokens and who may do what. Tokens are made here with Python's hmac."""

import base64
import json
import subprocess
import time

import daemons
import pytest
from answers import done, json_of
from daemons import token

LIMIT = "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=200000&block=true"
ENERGY = "/cpu/get_cumulative_energy?cpu=true&dram=true"
FAR = 9999999999
# The two vectors of the protocol's description.
TESTUSER = (
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ0ZXN0dXNlciIsInNjb3BlcyI6WyJncHUtcmVhZCJd"
    "LCJleHAiOjk5OTk5OTk5OTl9.uiJPBfP5-zQ6ZaSCvx8KPbb7BE980zC_WfWX4vyCOEU"
)
BOB = (
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJib2IiLCJzY29wZXMiOlsiZ3B1LWNvbnRyb2wiXX0"
    ".Uq4pXoWc1LafweJ69g1uPPJ7jctcdfI-iYKzFeQIwbA"
)


def unauthorized(answer):
    assert set(json_of(answer, 401)) == {"error"}
    assert answer.headers["www-authenticate"] == 'Bearer realm="zeusd"'


def forbidden(answer):
    assert set(json_of(answer, 403)) == {"error"}
    assert "www-authenticate" not in answer.headers


def test_our_tokens_are_those_of_the_description():
    assert token("testuser", ["gpu-read"], exp=FAR) == TESTUSER
    assert token("bob", ["gpu-control"]) == BOB


# --- the matrix ---


def test_discovery_and_time_are_always_open(daemon, guarded):
    for served, required in ((daemon, False), (guarded, True)):
        assert json_of(served.get("/discover"))["auth_required"] is required
        for bearer in (None, "garbage", BOB):
            json_of(served.get("/time", bearer))
            json_of(served.get("/discover", bearer))


def test_without_a_key_every_token_is_ignored(daemon):
    for bearer in (None, "garbage", BOB):
        json_of(daemon.get("/gpu/get_power", bearer))
        json_of(daemon.get(ENERGY, bearer))
        done(daemon.post(LIMIT, bearer))


@pytest.mark.parametrize("bearer", [None, "garbage", TESTUSER, BOB])
def test_a_disabled_group_is_not_found_before_anybody_is_asked(shared, bearer):
    for options in ({}, {"key": daemons.KEY}):
        daemon = shared("--enable", "cpu-read", **options)
        for method, target in (
            ("GET", "/gpu/get_power"),
            ("GET", "/gpu/stream_power"),
            ("GET", "/gpu/nonsense"),
            ("POST", LIMIT),
            ("POST", "/gpu/reset_gpu_locked_clocks?gpu_ids=0&block=true"),
        ):
            assert set(json_of(daemon.send(method, target, bearer), 404)) == {"error"}


GOOD = [
    ("GET", "/gpu/get_power", "gpu-read"),
    ("GET", "/gpu/get_cumulative_energy", "gpu-read"),
    ("GET", "/gpu/get_power_limit", "gpu-read"),
    ("GET", "/gpu/get_power_limit_constraints", "gpu-read"),
    ("GET", "/gpu/get_persistence_mode", "gpu-read"),
    ("POST", LIMIT, "gpu-control"),
    ("POST", "/gpu/set_persistence_mode?gpu_ids=0&enabled=true&block=true", "gpu-control"),
    ("POST", "/gpu/reset_gpu_locked_clocks?gpu_ids=0&block=true", "gpu-control"),
    ("POST", "/gpu/reset_mem_locked_clocks?gpu_ids=0&block=true", "gpu-control"),
    ("GET", ENERGY, "cpu-read"),
    ("GET", "/cpu/get_power", "cpu-read"),
]


@pytest.mark.parametrize(("method", "target", "scope"), GOOD)
def test_each_route_wants_its_own_scope(guarded, method, target, scope):
    for bearer in (
        "garbage",
        token(scopes=[scope], exp=1000000000),
        token(scopes=[scope], key=b"another key of thirty-two bytes!"),
    ):
        unauthorized(guarded.send(method, target, bearer))
    unauthorized(guarded.send(method, target))
    for others in ([], [s for s in daemons.GROUPS if s != scope]):
        forbidden(guarded.send(method, target, token(scopes=others)))
    for scopes in ([scope], daemons.GROUPS):
        assert guarded.send(method, target, token(scopes=scopes)).status_code == 200
        assert guarded.send(method, target, token(scopes=scopes, exp=FAR)).status_code == 200


@pytest.mark.parametrize("stream", ["gpu", "cpu"])
def test_streams_want_the_scope_to_read(guarded, stream):
    target = f"/{stream}/stream_power"
    unauthorized(guarded.get(target))
    forbidden(guarded.get(target, BOB))
    with guarded.client(token(scopes=[f"{stream}-read"])) as client:
        with client.stream("GET", target) as answer:
            assert answer.status_code == 200


def test_a_path_of_no_group_still_wants_a_token(guarded):
    for target in ("/nonsense", "/gpu", "/auth/nonsense", "/"):
        unauthorized(guarded.get(target))
        answer = guarded.get(target, token(scopes=[]))
        assert answer.status_code == 404


# --- whoami ---


def test_whoami(daemon, guarded):
    assert set(json_of(daemon.get("/auth/whoami"), 404)) == {"error"}
    assert set(json_of(daemon.get("/auth/whoami", BOB), 404)) == {"error"}
    unauthorized(guarded.get("/auth/whoami"))
    unauthorized(guarded.get("/auth/whoami", "garbage"))
    assert json_of(guarded.get("/auth/whoami", BOB)) == {"sub": "bob", "scopes": ["gpu-control"]}
    assert json_of(guarded.get("/auth/whoami", token("a", ["gpu-read", "cpu-read"], exp=FAR))) == {
        "sub": "a",
        "scopes": ["gpu-read", "cpu-read"],
        "exp": FAR,
    }
    assert json_of(guarded.get("/auth/whoami", token("", []))) == {"sub": "", "scopes": []}
    assert json_of(guarded.get("/auth/whoami", token("b", [], exp=None))) == {
        "sub": "b",
        "scopes": [],
    }


# --- tokens ---


def test_a_token_is_good_for_sixty_seconds_after_its_end(guarded):
    now = int(time.time())
    json_of(guarded.get("/auth/whoami", token(exp=now - 30)))
    unauthorized(guarded.get("/auth/whoami", token(exp=now - 61)))


def unsigned(header: dict) -> str:
    def part(value) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part(header)}.{part({'sub': 'x', 'scopes': list(daemons.GROUPS)})}."


@pytest.mark.parametrize(
    "bearer",
    [
        token(header={"typ": "JWT", "alg": "none"}),
        unsigned({"typ": "JWT", "alg": "none"}),
        unsigned({"typ": "JWT", "alg": "None"}),
        unsigned({"typ": "JWT", "alg": "HS256"}),
        token(header={"typ": "JWT", "alg": "HS512"}),
        token(header={"typ": "JWT", "alg": "HS384"}),
        token(header={"typ": "JWT", "alg": "RS256"}),
        token(header={"typ": "JWT"}),
        token(scopes=["gpu-read", "gpu-write"]),
        token(exp=FAR + 0.5),
        token(exp=str(FAR)),
        token(exp=-1),
        token(exp=0),
        token(aud="zeusd"),
        token(aud=["zeusd"]),
        TESTUSER[:-1],
        TESTUSER + "=",
        TESTUSER + "." + "x",
        TESTUSER.replace(".", "..", 1),
        " " + TESTUSER,
        TESTUSER.rpartition(".")[0] + ".",
        BOB.rpartition(".")[0] + "." + TESTUSER.rpartition(".")[2],
        "..",
        "a.b.c",
        "x" * 8000,
    ],
)
def test_tokens_that_are_not_good_are_refused(guarded, bearer):
    unauthorized(guarded.get("/auth/whoami", bearer))


@pytest.mark.parametrize(
    "claims", [{"sub": 5}, {"sub": None}, {"scopes": "gpu-read"}, {"scopes": None}, {"scopes": [1]}]
)
def test_claims_of_another_type_are_refused(guarded, claims):
    unauthorized(guarded.get("/auth/whoami", token(**{"sub": "x", "scopes": [], **claims})))


@pytest.mark.parametrize(
    "claims", [{"nbf": FAR}, {"iat": FAR}, {"iss": "me"}, {"jti": "1"}, {"more": {"a": [1]}}]
)
def test_claims_of_no_meaning_are_borne(guarded, claims):
    json_of(guarded.get("/auth/whoami", token(**claims)))


@pytest.mark.parametrize("value", ["Bearer", "bearer " + BOB, "Basic " + BOB, BOB, "Bearer\t" + BOB])
def test_only_the_exact_word_introduces_a_token(guarded, value):
    unauthorized(guarded.send("GET", "/auth/whoami", headers={"Authorization": value}))


def test_a_newline_at_the_end_of_the_key_belongs_to_it(shared):
    daemon = shared(key=daemons.KEY + b"\n")
    unauthorized(daemon.get("/auth/whoami", BOB))
    json_of(daemon.get("/auth/whoami", token(key=daemons.KEY + b"\n")))


# --- paths that hide what they are ---


@pytest.mark.parametrize("path", ["/gpu/%73et_power_limit", "/gpu/se%74_power_limit"])
def test_an_encoded_path_does_not_hide_a_write(guarded, path):
    done(guarded.post("/gpu/set_power_limit?gpu_ids=1&power_limit_mw=300000&block=true", token()))
    query = "gpu_ids=1&power_limit_mw=123000&block=true"
    answer = guarded.post(f"{path}?{query}", token(scopes=["gpu-read"]))
    wanted = guarded.expected("encoded control path with a token to read")
    assert answer.status_code == wanted
    assert guarded.gpus[1].limit_mw == (123_000 if wanted == 200 else 300_000)


@pytest.mark.parametrize("path", ["/%67pu/get_power", "/g%70u/get_power", "/gp%75/get_power"])
def test_an_encoded_group_does_not_hide_itself(guarded, path):
    unauthorized(guarded.get(path))
    answer = guarded.get(path, token(scopes=[]))
    assert answer.status_code == guarded.expected("encoded group with a token without a scope")
    assert guarded.get(path, token(scopes=["gpu-read"])).status_code == 200


def test_an_encoded_path_of_a_disabled_group_is_not_found(shared):
    daemon = shared("--enable", "cpu-read", key=daemons.KEY)
    answer = daemon.get("/%67pu/get_power")
    assert answer.status_code == daemon.expected("encoded path of a disabled group without a token")


# --- issuing ---


def issue(which, zeus, folder, *arguments: str, key: bytes = daemons.KEY):
    secret = folder / "key"
    secret.write_bytes(key)
    secret.chmod(0o600)
    command = [str(daemons.binary(which, zeus)), "token", "issue"]
    return subprocess.run(
        [*command, "--signing-key-path", str(secret), *arguments], capture_output=True, text=True
    )


def test_issued_tokens_are_made_like_ours(which, zeus, tmp_path):
    for scopes, expires in (("gpu-read", "never"), ("gpu-control,cpu-read", "0")):
        done = issue(
            which, zeus, tmp_path, "--user", "bob", "--scope", scopes, "--expires", expires
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == token("bob", scopes.split(",")) + "\n"


@pytest.mark.parametrize(
    ("expires", "seconds"),
    [("1h", 3600), ("7d", 7 * 86400), ("2weeks", 14 * 86400), ("1h 30m", 5400), ("90s", 90)],
)
def test_issued_tokens_end_when_told(which, zeus, tmp_path, expires, seconds):
    before = int(time.time())
    done = issue(which, zeus, tmp_path, "--user", "bob", "--scope", "gpu-read", "--expires", expires)
    after = int(time.time())
    assert done.returncode == 0, done.stderr
    claims = done.stdout.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert before + seconds <= claims.pop("exp") <= after + seconds + 1
    assert list(claims.items()) == [("sub", "bob"), ("scopes", ["gpu-read"])]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--user", "bob", "--scope", "gpu-read", "--expires", "soon"],
        ["--user", "bob", "--scope", "gpu-write", "--expires", "1h"],
        ["--user", "bob", "--scope", "gpu-read"],
        ["--scope", "gpu-read", "--expires", "1h"],
    ],
)
def test_tokens_that_mean_nothing_are_not_issued(which, zeus, tmp_path, arguments):
    done = issue(which, zeus, tmp_path, *arguments)
    assert done.returncode != 0 and done.stdout == ""


def test_an_empty_key_signs_nothing(which, zeus, tmp_path):
    arguments = ["--user", "bob", "--scope", "gpu-read", "--expires", "1h"]
    assert issue(which, zeus, tmp_path, *arguments, key=b"").returncode != 0


def test_an_issued_token_is_accepted(guarded, zeus, tmp_path):
    done = issue(
        guarded.which, zeus, tmp_path, "--user", "eve", "--scope", "gpu-read", "--scope",
        "cpu-read", "--expires", "1h",
    )  # fmt: skip
    told = json_of(guarded.get("/auth/whoami", done.stdout.strip()))
    assert told["sub"] == "eve" and told["scopes"] == ["gpu-read", "cpu-read"]
