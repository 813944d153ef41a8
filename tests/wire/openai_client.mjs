// openai_client.mjs: OpenAI's Node client against the server at argv[2]: what applications do with it. One JSON object on stdout, read by
// test_openai_node.py; argv[3] is {ids: [[...]]}, texts as token ids for the encoder.
import OpenAI, { BadRequestError, NotFoundError } from "openai";

const client = new OpenAI({ baseURL: process.argv[2] + "/v1", apiKey: "none", maxRetries: 0 });
const { ids } = JSON.parse(process.argv[3]);
const chat = client.chat.completions;
const say = (model, content, more) => ({ model, messages: [{ role: "user", content }], ...more });
const out = {};

async function kind(promise) {
  try {
    await promise;
    return "no error";
  } catch (e) {
    return { status: e.status, param: e.param, code: e.code, bad: e instanceof BadRequestError, missing: e instanceof NotFoundError };
  }
}

// ---- chat, whole and streamed, by hand and by the client's own gatherer ----
const text = "naïve 日本語 👍🏽 <b>\n";
out.whole = (await chat.create(say("plain", text, { n: 2, seed: 1 }))).choices.map((c) => c.message.content);
out.streamed = "";
for await (const c of await chat.create(say("plain", text, { stream: true, stream_options: { include_usage: true } }))) {
  out.streamed += c.choices[0]?.delta?.content ?? "";
  if (c.usage) out.usage = c.usage;
}
const gathered = await chat.stream(say("plain", text)).finalChatCompletion();
out.gathered = [gathered.choices[0].message.content, gathered.choices[0].finish_reason];
const left = await chat.create(say("plain", text.repeat(50), { stream: true }));
for await (const c of left) {
  if (c.choices[0]?.delta?.content) left.controller.abort();
}
out.aborted = left.controller.signal.aborted;
out.completion = (await client.completions.create({ model: "plain", prompt: text, max_tokens: 100 })).choices[0].text;
out.logprobs = (await chat.create(say("plain", "abc", { logprobs: true, top_logprobs: 2 }))).choices[0].logprobs.content.map((t) => t.token).join("");

// ---- tools ----
const WEATHER = { name: "get_weather", description: "The weather of a city.",
                  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } };
const tools = [{ type: "function", function: WEATHER }];
const written = 'Let me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "São Paulo {x}"}}\n</tool_call>\n';
const called = (await chat.create(say("hermes", written, { tools }))).choices[0];
out.call = [called.finish_reason, called.message.content, called.message.tool_calls[0].function];
const streamed = (await chat.stream(say("hermes", written, { tools })).finalChatCompletion()).choices[0];
out.streamedCall = [streamed.finish_reason, streamed.message.content, streamed.message.tool_calls[0].function];
const asked = [];
const runner = chat.runTools(say("hermes", written, {
  tools: [{ type: "function", function: { ...WEATHER, parse: JSON.parse, function: (a) => (asked.push(a), "sunny in " + a.city) } }] }));
out.loop = [asked, await runner.finalContent(), asked.length];
const required = (await chat.create(say("plain", '[{"name": "get_weather", "arguments": {"city": "Oslo"}}]', { tools, tool_choice: "required" }))).choices[0];
out.required = [required.finish_reason, required.message.tool_calls[0].function];

// ---- a form for the answer ----
const schema = { type: "object", properties: { name: { type: "string" }, age: { type: "integer" } }, required: ["name", "age"], additionalProperties: false };
const form = { type: "json_schema", json_schema: { name: "person", schema, strict: true } };
out.parsed = (await chat.parse(say("plain", '{"name": "Ada", "age": 36}', { response_format: form }))).choices[0].message.parsed;
out.unusable = await kind(chat.create(say("strict", "x", { response_format: form })));

// ---- responses ----
out.response = (await client.responses.create({ model: "plain", input: text })).output_text;
out.events = [];
for await (const e of await client.responses.create({ model: "plain", input: "ab", stream: true })) out.events.push(e.type);

// ---- embeddings: the client asks for base64 unless told ----
const plain = await client.embeddings.create({ model: "bert", input: ids });
const floats = await client.embeddings.create({ model: "bert", input: ids, encoding_format: "float" });
out.vectors = plain.data.map((d) => Array.from(d.embedding));
out.floats = floats.data.map((d) => d.embedding);

// ---- the rest ----
out.models = (await client.models.list()).data.map((m) => m.id).sort();
out.errors = {
  range: await kind(chat.create(say("plain", "x", { temperature: -1 }))),
  model: await kind(chat.create(say("nobody", "x"))),
  stream: await kind(chat.create(say("plain", "x", { stream: true, top_p: 2 }))),
  encoder: await kind(chat.create(say("bert", "x"))),
};
console.log(JSON.stringify(out));
