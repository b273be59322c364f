"""What an answer of zeusd must look like, whatever it says."""


def json_of(answer, status=200):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def done(answer):
    """A write that succeeded: an empty body without a type."""
    assert answer.status_code == 200, answer.text
    assert answer.content == b"" and answer.headers["content-length"] == "0"
    assert "content-type" not in answer.headers


def refused_query(answer, *words):
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text.startswith("Query deserialize error: ")
    assert any(word in answer.text for word in words), answer.text
