"""test_openai_responses.py: /v1/responses with the official client, over scripted models that say what the last message says."""
import json

import openai
import pytest
import requests

from inferd_server import Server, write_fake

TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}, "strict": False,
        "description": "The weather."}
CALL = 'One moment.\n<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>'


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "parrot", "tokens = true\npiece_bytes = 3\nconstrain = true\nchat_template = {{ '<tool_call><think>' }}\n")
    write_fake(root, "broken", "tokens = true\npiece_bytes = 1\nfail_after = 2\n")
    with Server(root) as s:
        yield s


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def test_text(client):
    r = client.responses.create(model="parrot", input="Hello, world", instructions="Repeat.", metadata={"a": "b"})
    assert r.output_text == "Hello, world" and r.status == "completed" and r.object == "response" and r.id.startswith("resp_")
    assert (r.usage.input_tokens, r.usage.output_tokens, r.usage.total_tokens) == (12, 5, 17)
    assert r.instructions == "Repeat." and r.metadata == {"a": "b"} and r.store is False
    r = client.responses.create(model="parrot", input="Hello, world", max_output_tokens=2)
    assert (r.output_text, r.status, r.incomplete_details.reason) == ("Hello,", "incomplete", "max_output_tokens")


def test_items(client):
    r = client.responses.create(model="parrot", input=[
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]}, {"type": "message", "role": "assistant", "content": "b"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "forty"}, {"type": "reasoning", "id": "rs_1", "summary": []},
        {"role": "user", "content": [{"type": "input_text", "text": "two "}, {"type": "input_text", "text": "parts"}]}])
    assert r.output_text == "two parts"


def test_calls_and_reasoning(client):
    r = client.responses.create(model="parrot", input="<think>hm</think>\n" + CALL, tools=[TOOL])
    assert [o.type for o in r.output] == ["reasoning", "message", "function_call"]
    assert r.output[0].content[0].text == "hm" and r.output_text == "One moment."
    call = r.output[2]
    assert call.name == "get_weather" and json.loads(call.arguments) == {"city": "Rome"} and call.call_id
    r = client.responses.create(model="parrot", input='{"city": "Oslo"}', tools=[TOOL], tool_choice={"type": "function", "name": "get_weather"})
    assert json.loads(r.output[0].arguments) == {"city": "Oslo"}


def test_structured(client):
    form = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}}
    assert client.responses.create(model="parrot", input='{"a": 1}', text=form).output_text == '{"a": 1}'


def test_stream_text(client):
    with client.responses.stream(model="parrot", input="Hello, grüße") as s:
        events = list(s)
        final = s.get_final_response()
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "Hello, grüße" == final.output_text
    kinds = [e.type for e in events]
    assert kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    assert kinds[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"]
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert final.usage.total_tokens > 0


def test_stream_calls(client):
    events = list(client.responses.create(model="parrot", input=CALL * 2, tools=[TOOL], stream=True))
    done = [e.item for e in events if e.type == "response.output_item.done"]
    assert [i.type for i in done] == ["message", "function_call", "message", "function_call"]
    arguments = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta" and e.output_index == 1)
    assert json.loads(arguments) == {"city": "Rome"} == json.loads(done[1].arguments)
    assert events[-1].type == "response.completed" and len(events[-1].response.output) == 4
    events = list(client.responses.create(model="parrot", input=CALL * 2, tools=[TOOL], stream=True, parallel_tool_calls=False))
    assert sum(e.type == "response.function_call_arguments.done" for e in events) == 1


def test_stream_ends(client, server):
    events = list(client.responses.create(model="parrot", input="abcdef", stream=True, max_output_tokens=1))
    assert events[-1].type == "response.incomplete" and events[-1].response.incomplete_details.reason == "max_output_tokens"
    events = list(client.responses.create(model="broken", input="abcdef", stream=True))
    assert events[-1].type == "response.failed" and "as its script says" in events[-1].response.error.message


@pytest.mark.parametrize("change, param", [
    ({"input": None}, "input"), ({"input": []}, "input"), ({"input": [3]}, "input"), ({"input": [{"type": "file_search_call"}]}, "input"),
    ({"input": [{"type": "function_call", "name": "x"}]}, "input"), ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"max_output_tokens": 0}, "max_output_tokens"), ({"temperature": -1}, "temperature"), ({"instructions": 3}, "instructions"),
    ({"tools": [{"type": "web_search"}]}, "tools"), ({"tools": 3}, "tools"), ({"n": 2}, "n"), ({"background": True}, "background"),
    ({"text": {"format": {"type": "xml"}}}, "text"), ({"text": 5}, "text"), ({"reasoning": []}, "reasoning"),
    ({"model": "nobody"}, "model"), ({"input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": "http://x/y.png"}]}]}, "input"), ({"input": [{"role": "robot", "content": "x"}]}, "input"), ({"input": [{"role": "user"}]}, "input"),
    ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input"),
])
def test_bad_fields_are_named(server, change, param):
    r = requests.post(server.url + "/v1/responses", json={"model": "parrot", "input": "x", **change})
    assert r.status_code in (400, 404) and r.json()["error"]["param"] == param, r.text
    server.alive()
