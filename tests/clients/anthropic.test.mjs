// Anthropic's SDK for Node, against /v1/messages.

import assert from "node:assert/strict";
import test from "node:test";
import Anthropic from "@anthropic-ai/sdk";

const { GATEWAY_URL, MODEL: model } = process.env;
const client = new Anthropic({ baseURL: GATEWAY_URL, apiKey: "unused", maxRetries: 0 });
const messages = [{ role: "user", content: "What is the capital of France?" }];

test("a streamed message is the same text as a whole one", async () => {
  const whole = await client.messages.create({ model, max_tokens: 50, messages });
  const streamed = await client.messages.stream({ model, max_tokens: 50, messages }).finalMessage();
  assert.ok(whole.content[0].text.length > 0);
  assert.equal(streamed.content[0].text, whole.content[0].text);
  assert.equal(streamed.usage.output_tokens, whole.usage.output_tokens);
  assert.equal(whole.model, model);
});

test("tokens are counted", async () => {
  const { input_tokens } = await client.messages.countTokens({ model, messages });
  assert.ok(input_tokens > 0);
});

test("an unknown model is not found, as an error of this API", async () => {
  const asked = client.messages.create({ model: "nobody", max_tokens: 5, messages });
  await assert.rejects(asked, (error) => {
    assert.ok(error instanceof Anthropic.NotFoundError);
    assert.equal(error.error.type, "error");
    assert.equal(error.error.error.type, "not_found_error");
    return true;
  });
});
