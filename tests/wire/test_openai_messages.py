"""test_openai_messages.py: what a chat template gets to see of a conversation, over scripted models that answer with exactly that."""
import json

import pytest
import requests

from inferd_server import Server, write_fake

TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": {"type": "object", "properties": {}}}}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "get_weather",
                                                                                                         "arguments": '{"city": "Rome"}'}}]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "sunny"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "able", "tokens = true\nreveal = true\ncontext = 100000\nchat_template = {{ '<tool_call>' }}\n")
    write_fake(root, "plain", "tokens = true\nreveal = true\ncontext = 100000\n")
    write_fake(root, "simple", "tokens = true\nreveal = true\ncontext = 100000\nno_system = true\n")
    with Server(root) as s:
        yield s


def seen(server, model, messages, **more):
    r = requests.post(server.url + "/v1/chat/completions", json={"model": model, "messages": messages, **more})
    assert r.status_code == 200, r.text
    message = r.json()["choices"][0]["message"]
    return json.loads(message["content"])


def test_content_is_text(server):
    got = seen(server, "plain", [{"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                                 {"role": "user", "content": "c", "name": "Ann"}, {"role": "assistant", "content": None, "tool_calls": []}])
    assert got["messages"] == [{"role": "system", "content": "ab"}, {"role": "user", "content": "c", "name": "Ann"},
                               {"role": "assistant", "content": ""}]
    assert got["add_generation_prompt"] is True and "tools" not in got


def test_variables(server):
    got = seen(server, "plain", [{"role": "user", "content": "x"}], chat_template_kwargs={"enable_thinking": False, "n": [1]},
               reasoning_effort="low", add_generation_prompt=False)
    assert got["enable_thinking"] is False and got["n"] == [1] and got["reasoning_effort"] == "low" and got["add_generation_prompt"] is False


def test_tools_of_an_able_template(server):
    got = seen(server, "able", [{"role": "user", "content": "x"}, CALL, RESULT], tools=[TOOL], tool_choice="auto")
    assert got["tools"] == [TOOL]
    assert got["messages"][1]["tool_calls"][0]["function"]["arguments"] == {"city": "Rome"}  # an object, as templates want it
    assert got["messages"][2] == RESULT
    assert "tools" not in seen(server, "able", [{"role": "user", "content": "x"}], tools=[TOOL], tool_choice="none")


def test_tools_in_words(server):
    got = seen(server, "plain", [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "x"}, CALL, RESULT], tools=[TOOL])
    assert "tools" not in got and [m["role"] for m in got["messages"]] == ["system", "user", "assistant", "user"]
    system = got["messages"][0]["content"]
    assert system.startswith("Be kind.\n\n") and json.dumps(TOOL["function"], separators=(",", ":")) in system
    call = got["messages"][2]
    assert "tool_calls" not in call and json.loads(call["content"].split("<tool_call>")[1].split("</tool_call>")[0]) == {
        "name": "get_weather", "arguments": {"city": "Rome"}}
    assert got["messages"][3]["content"] == "<tool_response>\nsunny\n</tool_response>"


def test_system_in_words(server):
    got = seen(server, "simple", [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "x"}, {"role": "user", "content": "y"}])
    assert got["messages"] == [{"role": "user", "content": "Be kind.\n\nx"}, {"role": "user", "content": "y"}]
    assert seen(server, "simple", [{"role": "system", "content": "alone"}])["messages"] == [{"role": "user", "content": "alone"}]
    got = seen(server, "simple", [{"role": "user", "content": "x"}], tools=[TOOL])
    assert len(got["messages"]) == 1 and got["messages"][0]["content"].endswith("\n\nx") and "get_weather" in got["messages"][0]["content"]


def test_arguments_that_are_no_object_stay(server):
    odd = {**CALL, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "not json"}}]}
    got = seen(server, "able", [{"role": "user", "content": "x"}, odd])
    assert got["messages"][1]["tool_calls"][0]["function"]["arguments"] == "not json"


def test_only_calls_may_come_without_content(server):
    for message, what in (({"role": "user"}, "missing"), ({"role": "user", "content": None}, "null"), ({"role": "tool", "tool_call_id": "c1"}, "missing"),
                          ({"role": "system", "content": None}, "null")):
        r = requests.post(server.url + "/v1/chat/completions", json={"model": "plain", "messages": [message]})
        error = r.json()["error"]
        assert (r.status_code, error["param"]) == (400, "messages") and f"messages[0].content is {what}" in error["message"]
