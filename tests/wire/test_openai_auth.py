"""test_openai_auth.py: keys on OpenAI's endpoints, where the model's name is in the body."""
import subprocess

import openai
import pytest
import requests

from inferd_server import BINARY, Server, wait_until, write_fake

SAY = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    root = tmp_path_factory.mktemp("auth")
    for name in ("parrot", "secret"):
        write_fake(root / "models", name, "tokens = true\n")

    def make(name, *flags):
        return subprocess.run([BINARY, "keys", "make", "--file", root / "keys", "--name", name, *flags], capture_output=True, text=True,
                              check=True).stdout.strip()

    keys = {"some": make("some", "-s", "infer,read", "-m", "parrot"), "read": make("read", "-s", "read")}
    with Server(root / "models", args=[f"--auth.keys_file={root / 'keys'}"], wait=None) as s:
        s.k = keys
        wait_until(lambda: requests.get(s.url + "/v1/models/parrot", headers={"x-api-key": keys["read"]}).status_code == 200)
        yield s


def client(server, key):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0)


def test_a_key_sees_its_models(closed):
    c = client(closed, closed.k["some"])
    assert c.chat.completions.create(model="parrot", messages=SAY).choices[0].message.content == "hello"
    assert [m.id for m in c.models.list()] == ["parrot"]
    for call in (lambda m: c.chat.completions.create(model=m, messages=SAY), lambda m: c.completions.create(model=m, prompt="x"),
                 lambda m: c.responses.create(model=m, input="x"), lambda m: c.models.retrieve(m), lambda m: c.embeddings.create(model=m, input="x")):
        with pytest.raises(openai.NotFoundError) as hidden:
            call("secret")
        with pytest.raises(openai.NotFoundError) as unknown:
            call("nobody")
        assert hidden.value.body == {**unknown.value.body, "message": unknown.value.body["message"].replace("nobody", "secret")}


def test_others_are_refused(closed):
    with pytest.raises(openai.AuthenticationError) as e:
        client(closed, "none").chat.completions.create(model="parrot", messages=SAY)
    assert e.value.body["type"] == "authentication_error"
    with pytest.raises(openai.PermissionDeniedError) as e:
        client(closed, closed.k["read"]).chat.completions.create(model="parrot", messages=SAY)
    assert e.value.body["type"] == "permission_error"
    r = requests.post(closed.url + "/v2/models/secret/generate", json={"text_input": "x"}, headers={"x-api-key": closed.k["some"]})
    assert r.status_code == 404
