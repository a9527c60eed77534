"""The gateway in front of a real vLLM, as a client and an operator see it."""

import json
import os
import time
import urllib.request

import openai
import pytest

MODEL = os.environ["MODEL"]
HELLO = [{"role": "user", "content": "import sys"}]


@pytest.fixture(scope="session")
def client():
    return openai.OpenAI(base_url=os.environ["GATEWAY_URL"] + "/v1", api_key="unused", max_retries=0)


def fetch(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def endpoint():
    status = json.loads(fetch(os.environ["ADMIN_URL"] + "/status.json"))
    return status["pools"][0]["endpoints"][0]


def engine_running():
    page = fetch(os.environ["ENGINE_URL"] + "/metrics").splitlines()
    running = [line for line in page if line.startswith("vllm:num_requests_running{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in running)


def eventually(condition, patience=5.0):
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_whole_answer_has_as_many_tokens_as_asked_for(client):
    answer = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=16, extra_body={"ignore_eos": True}
    )
    assert answer.model == MODEL
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 16


def test_streamed_answer_arrives_in_pieces_and_ends_with_usage(client):
    stream = client.chat.completions.create(
        model=MODEL,
        messages=HELLO,
        max_tokens=16,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    chunks = list(stream)
    assert len([chunk for chunk in chunks if chunk.choices]) > 4
    assert chunks[-1].usage.completion_tokens == 16


def test_completion_takes_tokens(client):
    answer = client.completions.create(
        model=MODEL, prompt=[5, 6, 7, 8], max_tokens=4, extra_body={"ignore_eos": True}
    )
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (4, 4)


def test_alias_is_answered_by_its_own_name(client):
    answer = client.chat.completions.create(model="small", messages=HELLO, max_tokens=2)
    assert answer.model == "small"


def test_unknown_model_is_the_gateways_404(client):
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(model="nobody", messages=HELLO)
    assert refused.value.response.headers["x-inference-gateway-reason"] == "unknown-model"


def test_refusal_of_the_engine_is_passed_on(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=1_000_000)
    assert "x-inference-gateway-reason" not in refused.value.response.headers


def test_models_are_listed_with_their_aliases(client):
    names = {model.id for model in client.models.list()}
    assert {MODEL, "small"} <= names


def test_repeated_prompt_is_found_in_the_engines_cache(client):
    long = [{"role": "user", "content": "def f(self): return None\n" * 40}]
    for _ in range(2):
        answer = client.chat.completions.create(model=MODEL, messages=long, max_tokens=1)
    assert answer.usage.prompt_tokens_details.cached_tokens > 0


def test_signals_of_the_engine_are_fresh():
    eventually(lambda: endpoint()["signal_age_seconds"] is not None)
    now = endpoint()
    assert now["state"] == "serving"
    assert now["signal_age_seconds"] < 2
    assert now["waiting"] is not None and now["running"] is not None and now["kv_usage"] is not None


def test_engine_stops_when_the_client_leaves(client):
    stream = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
    )
    next(stream)
    eventually(lambda: engine_running() >= 1)
    stream.close()
    eventually(lambda: engine_running() == 0)
    eventually(lambda: endpoint()["in_flight"] == 0)
