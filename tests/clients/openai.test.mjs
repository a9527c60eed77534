// openai for Node, unchanged.

import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";
import { engineCounters, eventually } from "./behind.mjs";

const { GATEWAY_URL, MODEL: model, MODEL_ALIAS, MODEL_ADAPTER } = process.env;
const client = new OpenAI({ baseURL: `${GATEWAY_URL}/v1`, apiKey: "unused", maxRetries: 0 });
const messages = [{ role: "user", content: "What is the capital of France?" }];
const weather = {
  type: "function",
  function: {
    name: "weather",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};

test("a streamed chat is the same text as a whole one", async () => {
  const whole = await client.chat.completions.create({ model, messages });
  let text = "";
  let pieces = 0;
  for await (const chunk of await client.chat.completions.create({ model, messages, stream: true })) {
    const piece = chunk.choices[0]?.delta.content ?? "";
    text += piece;
    pieces += piece ? 1 : 0;
  }
  assert.ok(pieces > 1);
  assert.equal(text, whole.choices[0].message.content);
});

test("the library's own stream helper puts a tool call together", async () => {
  const stream = client.chat.completions.stream({
    model,
    messages,
    tools: [weather],
    tool_choice: "required",
  });
  const call = (await stream.finalMessage()).tool_calls[0].function;
  assert.equal(call.name, "weather");
  assert.equal(typeof JSON.parse(call.arguments).city, "string");
});

test("JSON mode", async () => {
  const answer = await client.chat.completions.create({
    model,
    messages,
    response_format: { type: "json_object" },
  });
  assert.equal(typeof JSON.parse(answer.choices[0].message.content), "object");
});

test("embeddings", async () => {
  const answer = await client.embeddings.create({ model, input: ["one", "two"] });
  assert.equal(answer.data.length, 2);
  assert.ok(answer.data[0].embedding.every(Number.isFinite));
});

test("responses, whole and streamed", async () => {
  const whole = await client.responses.create({ model, input: "Hello" });
  let text = "";
  for await (const event of await client.responses.create({ model, input: "Hello", stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  assert.equal(text, whole.output_text);
});

test("models are listed once each", async () => {
  const names = [];
  for await (const entry of client.models.list()) names.push(entry.id);
  assert.equal(new Set(names).size, names.length);
  for (const name of [model, MODEL_ALIAS, MODEL_ADAPTER]) assert.ok(names.includes(name), name);
});

test("an unknown model is not found", async () => {
  const asked = client.chat.completions.create({ model: "nobody", messages });
  await assert.rejects(asked, (error) => error instanceof OpenAI.NotFoundError);
});

test("aborting a stream frees the engine", async () => {
  const before = (await engineCounters()).aborted;
  const stream = await client.chat.completions.create({
    model,
    messages,
    stream: true,
    max_tokens: 50_000,
    ignore_eos: true,
  });
  for await (const _ of stream) break;
  await eventually(async () => {
    const { running, aborted } = await engineCounters();
    return running === 0 && aborted === before + 1;
  });
});
