"""openai for Python, unchanged."""

import asyncio
import json
import os

import openai
import pytest

from conftest import engine_counters, eventually

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ENDLESS = {"max_tokens": 50_000, "extra_body": {"ignore_eos": True}}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def test_chat_is_what_the_engine_answers(client, engine, model):
    ours = client.chat.completions.create(model=model, messages=QUESTION)
    direct = engine.chat.completions.create(model=model, messages=QUESTION)
    assert ours.choices[0].message.content == direct.choices[0].message.content
    assert ours.choices[0].finish_reason == direct.choices[0].finish_reason
    # What was cached depends on who was asked first.
    assert ours.usage.total_tokens == direct.usage.total_tokens > 0
    assert ours.model == model


def test_streamed_chat_is_the_same_text(client, model):
    whole = client.chat.completions.create(model=model, messages=QUESTION)
    stream = client.chat.completions.create(
        model=model, messages=QUESTION, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    texts = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]
    assert len(texts) > 1
    assert "".join(texts) == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_several_choices(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) == 3


def test_completion_whole_and_streamed(client, model):
    whole = client.completions.create(model=model, prompt="Once upon a time", max_tokens=12)
    stream = client.completions.create(
        model=model, prompt="Once upon a time", max_tokens=12, stream=True
    )
    texts = [chunk.choices[0].text for chunk in stream if chunk.choices]
    assert "".join(texts) == whole.choices[0].text != ""


@pytest.mark.parametrize("stream", [False, True])
def test_tool_call(client, model, stream):
    answer = client.chat.completions.create(
        model=model, messages=QUESTION, tools=[WEATHER], tool_choice="required", stream=stream
    )
    if stream:
        deltas = [c.choices[0].delta for c in answer if c.choices]
        calls = [call for delta in deltas for call in delta.tool_calls or []]
        name = calls[0].function.name
        arguments = "".join(call.function.arguments or "" for call in calls)
    else:
        call = answer.choices[0].message.tool_calls[0].function
        name, arguments = call.name, call.arguments
    assert name == "weather"
    assert isinstance(json.loads(arguments)["city"], str)


def test_json_mode(client, model):
    answer = client.chat.completions.create(
        model=model, messages=QUESTION, response_format={"type": "json_object"}
    )
    assert isinstance(json.loads(answer.choices[0].message.content), dict)


def test_json_schema(client, model):
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    answer = client.chat.completions.create(
        model=model,
        messages=QUESTION,
        response_format={"type": "json_schema", "json_schema": {"name": "who", "schema": schema}},
    )
    assert isinstance(json.loads(answer.choices[0].message.content)["age"], int)


def test_embeddings(client, engine, model):
    texts = ["one text", "another"]
    ours = client.embeddings.create(model=model, input=texts)
    direct = engine.embeddings.create(model=model, input=texts)
    assert [e.embedding for e in ours.data] == [e.embedding for e in direct.data]
    assert len(ours.data) == 2 and len(ours.data[0].embedding) > 1


def test_responses_whole_and_streamed(client, model):
    whole = client.responses.create(model=model, input="What is the capital of France?")
    assert whole.output_text
    stream = client.responses.create(
        model=model, input="What is the capital of France?", stream=True
    )
    events = list(stream)
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == whole.output_text
    assert events[-1].type == "response.completed"


def test_models_are_listed_once_each(client, model):
    names = [entry.id for entry in client.models.list()]
    assert len(names) == len(set(names))
    assert {model, os.environ["MODEL_ALIAS"], os.environ["MODEL_ADAPTER"]} <= set(names)
    assert client.models.retrieve(model).id == model


def test_alias_comes_back_as_it_was_asked_for(client):
    alias = os.environ["MODEL_ALIAS"]
    answer = client.chat.completions.create(model=alias, messages=QUESTION)
    assert answer.model == alias
    stream = client.chat.completions.create(model=alias, messages=QUESTION, stream=True)
    assert {chunk.model for chunk in stream} == {alias}


def test_adapter_answers_under_its_own_name(client):
    adapter = os.environ["MODEL_ADAPTER"]
    answer = client.chat.completions.create(model=adapter, messages=QUESTION)
    assert answer.model == adapter


def test_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.create(model="nobody", messages=QUESTION)
    assert "nobody" in error.value.message
    assert error.value.response.headers["x-inference-gateway-reason"]


def test_error_of_the_engine_comes_through(client, engine, model):
    refusals = []
    for who in (client, engine):
        with pytest.raises(openai.BadRequestError) as error:
            who.chat.completions.create(model=model, messages=QUESTION, max_tokens=10_000_000)
        refusals.append(error.value.body)
    assert refusals[0] == refusals[1]


def test_closing_a_stream_frees_the_engine(client, model):
    before = engine_counters()["aborted"]
    stream = client.chat.completions.create(
        model=model, messages=QUESTION, stream=True, **ENDLESS
    )
    next(iter(stream))
    assert engine_counters()["running"] == 1
    stream.close()
    eventually(lambda: engine_counters() == {"running": 0, "aborted": before + 1})


def test_cancelling_a_request_that_is_not_streamed_frees_the_engine(model):
    async def cancel():
        url = os.environ["GATEWAY_URL"] + "/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="unused", max_retries=0) as client:
            create = client.chat.completions.create(model=model, messages=QUESTION, **ENDLESS)
            task = asyncio.create_task(create)
            while engine_counters()["running"] == 0:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    before = engine_counters()["aborted"]
    asyncio.run(asyncio.wait_for(cancel(), 30))
    eventually(lambda: engine_counters() == {"running": 0, "aborted": before + 1})


def test_many_at_once(model):
    async def ask_all():
        url = os.environ["GATEWAY_URL"] + "/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="unused", max_retries=0) as client:
            questions = [[{"role": "user", "content": f"Question {i}"}] for i in range(64)]
            return await asyncio.gather(
                *(client.chat.completions.create(model=model, messages=q) for q in questions)
            )

    answers = asyncio.run(ask_all())
    assert len({answer.id for answer in answers}) == 64
