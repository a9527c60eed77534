"""What the tests have in common: clients, and a look behind the gateway."""

import json
import os
import time
import urllib.request

import openai
import pytest

ENGINES = os.environ["ENGINE_URLS"].split(",")


@pytest.fixture(scope="session")
def client():
    return openai.OpenAI(base_url=os.environ["GATEWAY_URL"] + "/v1", api_key="unused", max_retries=0)


@pytest.fixture(scope="session")
def engine():
    """The same client, straight to a model server."""
    return openai.OpenAI(base_url=ENGINES[0] + "/v1", api_key="unused", max_retries=0)


@pytest.fixture(scope="session")
def model():
    return os.environ["MODEL"]


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def engine_counters():
    """Requests running, and aborted so far, over all model servers."""
    pages = [json.loads(fetch(url + "/admin/counters")) for url in ENGINES]
    engines = [engine for page in pages for engine in page["engines"]]
    return {key: sum(engine[key] for engine in engines) for key in ("running", "aborted")}


def eventually(condition, patience=1.0):
    """Waits for a condition; a second is what a cancelled request may take."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
