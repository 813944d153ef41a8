"""test_openai_tools.py: tool calls, reasoning and constrained answers with the official client, over a scripted model that writes what
the last message says: the text that a model of each family would write stands in the test, and what the client must see of it beside.
"""
import json

import openai
import pytest
import requests

from inferd_server import Server, write_fake

WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
HERMES = 'Let me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "São Paulo {x}"}}\n</tool_call>\n'
WRITTEN = {  # family: template's mark, what its models write for one call
    "hermes": ("{{ '<tool_call>' }}", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'),
    "mistral": ("{{ '[TOOL_CALLS]' }}", '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Rome"}}]'),
    "llama": ("{{ '<|python_tag|>' }}", '{"name": "get_weather", "parameters": {"city": "Rome"}}'),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "plain", "tokens = true\npiece_bytes = 5\nconstrain = true\n")
    write_fake(root, "strict", "tokens = true\n")
    for family, (mark, _) in WRITTEN.items():
        write_fake(root, family, f"tokens = true\npiece_bytes = 3\nchat_template = {mark}\n")
    write_fake(root, "thinker", "tokens = true\npiece_bytes = 3\nchat_template = {{ '<tool_call> <think>' }}\n")
    with Server(root) as s:
        yield s


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def ask(model, text, **more):
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


def gather(chunks):
    """What a client puts together from a stream: content, reasoning, calls by index, the finish reason."""
    content, reasoning, calls, finish = "", "", {}, None
    for c in chunks:
        for choice in c.choices:
            d = choice.delta
            content += d.content or ""
            reasoning += getattr(d, "reasoning_content", None) or ""
            for t in d.tool_calls or []:
                if t.id:
                    assert t.index not in calls and t.type == "function" and t.function.name
                    calls[t.index] = {"id": t.id, "name": t.function.name, "arguments": ""}
                calls[t.index]["arguments"] += t.function.arguments
            finish = choice.finish_reason or finish
    return content, reasoning, [calls[i] for i in sorted(calls)], finish


@pytest.mark.parametrize("family", WRITTEN)
def test_each_family(client, family):
    r = client.chat.completions.create(**ask(family, WRITTEN[family][1], tools=[WEATHER]))
    message = r.choices[0].message
    assert message.content is None and r.choices[0].finish_reason == "tool_calls"
    assert message.tool_calls[0].function.name == "get_weather"
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Rome"}
    content, _, calls, finish = gather(client.chat.completions.create(**ask(family, WRITTEN[family][1], tools=[WEATHER]), stream=True))
    assert (content, finish, len(calls)) == ("", "tool_calls", 1)
    assert json.loads(calls[0]["arguments"]) == {"city": "Rome"} and calls[0]["id"]
    if family == "mistral":
        assert len(calls[0]["id"]) == 9 and calls[0]["id"].isalnum()  # its template accepts no other


def test_content_and_call(client):
    content, _, calls, finish = gather(client.chat.completions.create(**ask("hermes", HERMES, tools=[WEATHER]), stream=True))
    assert content == "Let me look." and json.loads(calls[0]["arguments"]) == {"city": "São Paulo {x}"} and finish == "tool_calls"


def test_arguments_are_streamed(client):
    chunks = list(client.chat.completions.create(**ask("hermes", HERMES, tools=[WEATHER]), stream=True))
    assert sum(1 for c in chunks for t in c.choices[0].delta.tool_calls or [] if t.function.arguments) > 3


def test_several_calls(client):
    text = "".join('<tool_call>{"name": "clock", "arguments": {"n": %d}}</tool_call>\n' % i for i in range(3))
    r = client.chat.completions.create(**ask("hermes", text, tools=[CLOCK]))
    assert [json.loads(t.function.arguments)["n"] for t in r.choices[0].message.tool_calls] == [0, 1, 2]
    assert len({t.id for t in r.choices[0].message.tool_calls}) == 3
    r = client.chat.completions.create(**ask("hermes", text, tools=[CLOCK]), parallel_tool_calls=False)
    assert len(r.choices[0].message.tool_calls) == 1
    _, _, calls, _ = gather(client.chat.completions.create(**ask("hermes", text, tools=[CLOCK]), parallel_tool_calls=False, stream=True))
    assert len(calls) == 1 and json.loads(calls[0]["arguments"]) == {"n": 0}


def test_text_without_tools_is_text(client):
    for more in ({}, {"tools": [WEATHER], "tool_choice": "none"}):
        r = client.chat.completions.create(**ask("hermes", HERMES, **more))
        assert r.choices[0].message.content == HERMES and r.choices[0].message.tool_calls is None
        assert r.choices[0].finish_reason == "stop"
    broken = "<tool_call>call the weather</tool_call>"
    assert client.chat.completions.create(**ask("hermes", broken, tools=[WEATHER])).choices[0].message.content == broken


def test_required_and_named(client):
    """A grammar makes the answer; the scripted model writes what such a grammar allows."""
    made = '[{"name": "get_weather", "arguments": {"city": "Oslo"}}]'
    r = client.chat.completions.create(**ask("plain", made, tools=[WEATHER, CLOCK]), tool_choice="required")
    assert r.choices[0].finish_reason == "tool_calls"
    assert json.loads(r.choices[0].message.tool_calls[0].function.arguments) == {"city": "Oslo"}
    name = {"type": "function", "function": {"name": "clock"}}
    r = client.chat.completions.create(**ask("plain", '{"zone": "UTC"}', tools=[WEATHER, CLOCK]), tool_choice=name)
    call = r.choices[0].message.tool_calls[0].function
    assert (call.name, json.loads(call.arguments), r.choices[0].finish_reason) == ("clock", {"zone": "UTC"}, "stop")
    content, _, calls, _ = gather(client.chat.completions.create(**ask("plain", '{"zone": "UTC"}', tools=[CLOCK]), tool_choice=name, stream=True))
    assert content == "" and json.loads(calls[0]["arguments"]) == {"zone": "UTC"}


def test_tool_loop(client):
    """A loop as applications write it: call, answer, final words."""
    messages = [{"role": "user", "content": WRITTEN["hermes"][1]}]
    r = client.chat.completions.create(model="hermes", messages=messages, tools=[WEATHER])
    messages.append(r.choices[0].message)
    for call in r.choices[0].message.tool_calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny in " + json.loads(call.function.arguments)["city"]})
    r = client.chat.completions.create(model="hermes", messages=messages, tools=[WEATHER])
    assert "sunny in Rome" in r.choices[0].message.content and r.choices[0].finish_reason == "stop"


def test_reasoning(client):
    text = "<think>\nLet me\nthink.\n</think>\n\nThe answer <b>."
    r = client.chat.completions.create(**ask("thinker", text))
    assert (r.choices[0].message.content, r.choices[0].message.reasoning_content) == ("The answer <b>.", "\nLet me\nthink.")
    content, reasoning, _, finish = gather(client.chat.completions.create(**ask("thinker", text), stream=True))
    assert (content, reasoning, finish) == ("The answer <b>.", "\nLet me\nthink.", "stop")
    assert client.chat.completions.create(**ask("plain", text)).choices[0].message.content == text  # not a model that thinks


FORMATS = [{"response_format": {"type": "json_object"}}, {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}},
           {"guided_regex": "a+"}, {"guided_choice": ["a"]}, {"grammar": 'root ::= "a"'}, {"structured_outputs": {"json": {}}}]


@pytest.mark.parametrize("form", FORMATS)
def test_constraints_fail_closed(server, form):
    """A model that can't constrain its output refuses; one that can is asked."""
    r = requests.post(server.url + "/v1/chat/completions", json=ask("strict", "x", **form))
    assert r.status_code == 400 and "not available" in r.json()["error"]["message"] and r.json()["error"]["param"]
    r = requests.post(server.url + "/v1/chat/completions", json=ask("plain", "x", **form))
    assert r.status_code == 200 and r.json()["choices"][0]["message"]["content"] == "x"
    r = requests.post(server.url + "/v1/chat/completions", json=ask("strict", "x", tools=[CLOCK], tool_choice="required"))
    assert r.status_code == 400


@pytest.mark.parametrize("change, param", [
    ({"response_format": {"type": "xml"}}, "response_format"), ({"response_format": 1}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "response_format"), ({"response_format": {}}, "response_format"),
    ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex"),
    ({"response_format": {"type": "json_object"}, "tools": [CLOCK]}, "response_format"),
    ({"guided_choice": "a"}, "guided_choice"), ({"guided_regex": 3}, "guided_regex"),
    ({"tools": {}}, "tools"), ({"tools": [{"type": "retrieval"}]}, "tools"), ({"tools": [{"type": "function"}]}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"), ({"tools": [CLOCK] * 129}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"), ({"tools": [CLOCK], "tool_choice": "must"}, "tool_choice"),
    ({"tools": [CLOCK], "tool_choice": {"type": "function", "function": {"name": "nobody"}}}, "tool_choice"),
    ({"functions": [{}]}, "functions"), ({"tools": [CLOCK], "parallel_tool_calls": 1}, "parallel_tool_calls"),
    ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "messages"), ({"messages": [{"role": "assistant", "tool_calls": [1]}]}, "messages"),
])
def test_bad_fields_are_named(server, change, param):
    r = requests.post(server.url + "/v1/chat/completions", json={**ask("plain", "x"), **change})
    assert r.status_code == 400 and r.json()["error"]["param"] == param, r.text
    server.alive()
